"""Run a Triton kernel of the stream on the CPU, in Triton's interpreter: print its greatest distance from the dense pass.

``TRITON_INTERPRET=1 python -m helpers.interpreted_kernels 3 float32``; the interpreter is chosen when triton is imported.
"""

import sys

import torch

from helpers.streams import clouds, duals, pair
from otformer.network.features import squared_euclidean
from otformer.transport.executors import stream_kernels as kernels

REG = 0.01


def main(d: int, dtype: torch.dtype) -> float:
    dense, stream = pair(squared_euclidean(*clouds(70, 150, d)), dtype)
    u, v = duals(dense, REG, dtype)
    x, y = kernels.lay(stream.x), kernels.lay(stream.y)
    rows = kernels.log_ratio(x, y, u, v, stream.log_a, REG) - dense.log_ratio(u.double(), v.double(), REG, rows=True)
    columns = kernels.log_ratio(y, x, v, u, stream.log_b, REG) - dense.log_ratio(u.double(), v.double(), REG, rows=False)
    return float(torch.cat([rows, columns]).abs().max())


if __name__ == "__main__":
    print(main(int(sys.argv[1]), getattr(torch, sys.argv[2])))
