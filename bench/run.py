"""The benchmark from a checkout: ``python bench/run.py cpu --family uniform-2d --reg 0.001 --out bench/results``."""

from __future__ import annotations

import argparse
import sys

from otformer.benchmarks.harness import SCENARIOS, Settings, bench
from otformer.benchmarks.report import claims, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--out", default="bench/results")
    parser.add_argument("--append", action="store_true", help="keep earlier rows of other problems")
    parser.add_argument("--family", action="append", default=[])
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--n", action="append", type=int, default=[])
    parser.add_argument("--reg", action="append", type=float, default=[])
    parser.add_argument("--limit", type=float, default=Settings.limit, help="seconds for one solve")
    parser.add_argument("--rounds", type=int, default=Settings.rounds)
    parser.add_argument("--threads", type=int, default=Settings.threads)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    args = parser.parse_args()
    settings = Settings(
        n=args.n or Settings.n,
        regs=args.reg or Settings.regs,
        families=args.family,
        peers=args.peer,
        limit=args.limit,
        rounds=args.rounds,
        threads=args.threads,
        seed=args.seed,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
    )
    rows = bench(args.scenario, args.out, settings, append=args.append)
    print("\n".join([*table(rows), "", *claims(rows)]))


if __name__ == "__main__":
    main()
