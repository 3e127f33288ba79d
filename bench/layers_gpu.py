"""bench/layers.py on a CUDA device, at the sizes of the issue: python bench/layers_gpu.py [--repeat 20]

Every case is run with logits of standard deviation 1 and 3: the sharper they are, the less 20 iterations do.
"""

from __future__ import annotations

import argparse

import torch
from layers import compare

CASES = ("1048576x4x4", "1048576x2x2", "262144x8x8", "65536x16x16", "16384x32x32", "1000x64x64")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out: it needs a C++ compiler")
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for case in options.cases:
        for scale in (1.0, 3.0):
            compare(case, scale, "cuda", options.repeat, not options.no_compile)


if __name__ == "__main__":
    main()
