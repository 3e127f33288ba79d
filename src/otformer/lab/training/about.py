"""What each recipe trains, in a sentence: `otformer train --list` prints these without loading torch."""

ABOUT = {
    "paper-sorted": "Appendix A with squared error on the sorted list, n = 7.",
    "paper-attention": "Appendix A with squared error on the attention, n = 7.",
    "paper-entropy": (
        "Appendix A with cross-entropy on the rows of the attention, n = 7; 1,500 steps of the whole training set."
    ),
    "paper-no-prompt": "As paper-attention, without the engineered prompt: Z' = [x, y, 0].",
    "paper-from-construction": (
        "As paper-attention, from the construction (λ = 0.05, γ = λ) with noise 0.1; 1,500 steps of the whole training set."
    ),
    "sort-beyond": (
        "One layer looped 20 times, memory written only, learned annealing; lists of 2 to 7 points, permutations and "
        "real-valued; cross-entropy on the rows; started from a perturbed copy of the construction (λ = 0.05, noise "
        "0.1)."
    ),
    "sort-scratch": "As sort-beyond, started from noise: Gaussian P, V = 0, temperatures τ₀ = 2.",
    "cloud-beyond": (
        "As sort-beyond for Gaussian points in the plane, 2 to 7 of them, from the construction (λ = 0.5, noise 0.1)."
    ),
    "nearest": (
        "No layers, the output head alone, from noise: a nearest match sorts permutations, but not real-valued lists."
    ),
    "author": (
        "The author's published notebook: 19 layers and an output head, B = −0.1, u and v random, the sink −1/n, a softmax "
        "that overflows; squared error on the list; 7 of 50 numbers, 1,000 lists redrawn every 50 steps; Adam counts twice."
    ),
    "author-no-prompt": "As author, Z' = [x, y, 0], whose output head returns means of y and never sees the last point.",
    "author-no-prompt-corrected": "As author-no-prompt, with an output head that returns means of x and sees all points.",
    "author-clipped": "As author, gradients clipped to norm 1.",
    "author-single-adam": "As author, every parameter once in Adam's list.",
    "author-two-steps": "As author, two steps of Adam on every gradient: what the doubled list does on a CPU.",
    "author-stable": "As author, with a softmax that does not overflow.",
    "arxiv-literal": "Appendix A to the letter, all 1,000 samples in each of 10⁴ steps; squared error on the sorted list.",
    "arxiv-literal-attention": "As arxiv-literal, squared error on the attention.",
    "sort-draws": (
        "The author's data and loss, n = 7 alone; one layer looped 80 times, started from the construction, λ falling from "
        "0.18 to 0.001 along the loops; nine numbers are learned: how λ and stepsizes fall."
    ),
    "sort-draws-sizes": (
        "The author's data and loss, n = 3 to 15; one layer looped 60 times, all of it learned, started from the "
        "construction with noise 0.02, λ falling from 0.18 to 0.002."
    ),
}
