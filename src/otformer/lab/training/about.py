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
}
