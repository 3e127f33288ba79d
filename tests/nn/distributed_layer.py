"""One rank of two: a learnable DoublyStochastic in DistributedDataParallel follows the same alone on the whole batch."""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from otformer.nn import DoublyStochastic, SoftRank


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.balance, self.rank = nn.Linear(4, 4), DoublyStochastic([0.5, 1.0], learnable=True), SoftRank()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        P = self.balance(self.linear(x))
        return (P * self.rank(P)).square().mean()


def main(rank: int, meeting: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    x = torch.randn(8, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    alone, model = Model(), DistributedDataParallel(Model())
    for network, part in ((alone, x), (model, x[4 * rank : 4 * rank + 4])):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            network(part).backward()
            optimizer.step()
    for own, expected in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(own, expected, atol=1e-5, rtol=1e-4)
    assert alone.balance.log_temperature.tolist() != DoublyStochastic([0.5, 1.0]).log_temperature.tolist()
    torch.distributed.barrier()  # none leaves while the other still talks
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
