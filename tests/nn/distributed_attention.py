"""One rank of two: an encoder layer with SinkhornAttention in DistributedDataParallel follows one on the whole batch."""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from otformer.nn import SinkhornAttention


def model() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    layer.self_attn = SinkhornAttention(16, 2, batch_first=True, unbalanced=1.0)
    return layer


def main(rank: int, meeting: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    x = torch.randn(4, 5, 16, generator=torch.Generator().manual_seed(1))
    alone, shared = model(), DistributedDataParallel(model())
    for network, part in ((alone, x), (shared, x[2 * rank : 2 * rank + 2])):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (network(part) - 1).square().mean().backward()
            optimizer.step()
    for own, expected in zip(shared.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(own, expected, atol=1e-5, rtol=1e-4)
    torch.distributed.barrier()  # none leaves while the other still talks
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
