"""One coupling of two ranks.

`torchrun --nproc-per-node 2 test_couplings_ranks.py OUT` is what every rank runs: what came out goes to OUT/RANK.pt.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from scipy.optimize import linear_sum_assignment

from helpers.point_clouds import normal, squares_of
from otformer.nn.couplings import OTPlanSampler

RANKS = 2
SHARDS = {
    "even": ((8, 8), (8, 8)),
    "uneven": ((3, 13), (10, 6)),
    "one without": ((0, 9), (9, 0)),
    "unequal": ((4, 5), (9, 9)),
}


def whole(name: str) -> tuple[torch.Tensor, ...]:
    sizes = [sum(shard) for shard in SHARDS[name]]
    x, y = (normal(size, 6, seed).reshape(size, 2, 3) for seed, size in enumerate(sizes))
    return x.bfloat16() if name == "uneven" else x.float(), y.bfloat16() if name == "uneven" else y.float()


def on_rank(out: Path) -> None:
    dist.init_process_group("gloo")
    rank, found, said = dist.get_rank(), {}, {}
    for name, shards in SHARDS.items():
        x, y = (t.split(shard)[rank] for t, shard in zip(whole(name), shards, strict=True))
        found[name] = OTPlanSampler(generator=0).sample_plan_across_ranks(x, y)
    x, y = (t.split(8)[rank] for t in whole("even"))
    label = torch.arange(8) % 2
    found["labels"] = OTPlanSampler(match_labels=True).sample_plan_across_ranks(x, y, label, label.flip(0))
    bad = {
        "nan": (x, y / rank if rank else y * torch.nan),
        "dtype": (x.double() if rank else x, y),
        "method": (x, y),
        "labels": (x, y, None, torch.zeros(3 if rank else 8)),
    }
    for name, given in bad.items():
        try:
            OTPlanSampler("sinkhorn" if name == "method" else "exact").sample_plan_across_ranks(*given, timeout=30)
            said[name] = "no error"
        except ValueError as error:
            said[name] = str(error)
    torch.save((found, said), out / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    out = tmp_path_factory.mktemp("ranks")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), __file__, out]
    env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run([*map(str, launch)], env=env, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    return [torch.load(out / f"{rank}.pt", weights_only=False) for rank in range(RANKS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHARDS, "labels"])
def test_ranks_share_one_coupling(ranks, name):
    x, y = whole("even" if name == "labels" else name)
    parts = [found[name] for found, _ in ranks]
    x0, x1 = (torch.cat([part[k] for part in parts]) for k in range(2))
    assert sorted(x1.flatten(1).tolist()) == sorted(y.flatten(1).tolist())
    if name != "labels":
        C = squares_of(x.flatten(1), y.flatten(1))
        got = (x0.double() - x1.double()).square().flatten(1).sum(1)
        assert [len(part[1]) for part in parts] == list(SHARDS[name][1])
        if len(x) == len(y):
            assert sorted(x0.flatten(1).tolist()) == sorted(x.flatten(1).tolist())
            assert float(got.sum()) == pytest.approx(C[linear_sum_assignment(C)].sum(), rel=1e-9)
    else:
        assert all(torch.equal(part[2], part[3]) for part in parts)


@pytest.mark.slow
def test_ranks_all_hear_of_bad_input(ranks):
    for _, said in ranks:
        assert said["nan"] == ranks[0][1]["nan"]
        assert said["nan"].startswith("rank 0: x1 must be finite")
        assert said["dtype"].startswith("ranks must agree, but rank 0 has torch.float32")
        assert said["labels"] == "rank 1: y1 must be a tensor of length 8, got (3,) of torch.float32"
        assert said["method"].startswith("rank 0: method must be 'exact'")


if __name__ == "__main__":
    on_rank(Path(sys.argv[1]))
    os._exit(0)  # what is saved is checked; threads of gloo sometimes abort Python's own end
