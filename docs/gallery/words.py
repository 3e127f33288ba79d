"""Words of a translation, linked by transport.

Scores of every pair of words in a sentence and its translation; the links are marked.
"""

import matplotlib.pyplot as plt

import otformer as of

pair = "The small black cat sleeps on the old chair", "Le petit chat noir dort sur la vieille chaise"
found = of.align(" ||| ".join(pair), languages="en-fr")
source, target = (sentence.split() for sentence in pair)

figure, axis = plt.subplots(figsize=(4.6, 3.8), layout="constrained")
axis.imshow(found.matrix, cmap="Blues", vmin=0, vmax=1)
axis.scatter([i for i, _ in found], [j for _, j in found], s=14, color="C1")
axis.set_xticks(range(len(source)), source, rotation=60, ha="right")
axis.set_yticks(range(len(target)), target)
axis.set_title(f"{len(found)} links")
axis.grid(False)
figure.savefig("words.png")
assert {("black", "noir"), ("cat", "chat"), ("sleeps", "dort")} <= set(found.words)
