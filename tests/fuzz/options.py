"""Values of every option of every command, for `commands`; None: a flag. What would begin minutes of work is not among
them, nor is a Ray cluster. The first value of an option is most often a good one."""

from __future__ import annotations

NUMBERS = ("0.1", "1", "1e-9", "0", "-1", "nan", "inf", "1e309", "x", "")
COUNTS = ("1", "2", "0", "-1", "1e3", "x", str(10**30))
FILES = ("o.npz", "o.csv", "no/o.npz", ".", "/dev/full", "/dev/null", "x.npy", "/proc/x", "o", "")
SEEDS = ("0", "7", "-1", str(2**64), "x")
DEVICES = ("cpu", "no", "cuda:99")
VALUES: dict[str, dict[str, tuple[str, ...] | None]] = {
    "solve": {
        "--cost": None,
        "--reg": NUMBERS,
        "--exact": None,
        "--a": ("a.csv", "no", "x.npy"),
        "--b": ("a.csv", "no"),
        "--metric": ("sqeuclidean", "cosine", "euclidean", "no"),
        "--unbalanced": NUMBERS,
        "--tol": NUMBERS,
        "--max-depth": COUNTS,
        "--max-time": ("1", "0", "-1", "nan"),
        "--schedule": ("auto", "paper", "gradient", "alternating", "relaxed", "annealed", "no"),
        "--out": FILES,
        "--show": None,
        "--html": ("p.html", "no/p.html", "p.no", "/dev/full"),
        "--json": None,
    },
    "sort": {
        "--json": None,
    },
    "align": {
        "--languages": ("en-fr", "fr-en", "de-en", "no"),
        "--method": ("hmm", "vectors", "no"),
        "--by": ("words", "spaces", "no"),
        "--out": ("links", ".", "no/links", "/dev/full"),
        "--scores": None,
        "--tokens": None,
        "--matrix": ("m.npz", "-", "m.no"),
        "--show": None,
        "--gold": ("pairs", "gold", "no"),
        "--one-based": None,
        "--engine": ("local", "no"),
        "--workers": ("1", "0", "-1", "x"),
        "--json": None,
    },
    "probe": {
        "--languages": ("en-fr", "fr-en", "no"),
        "--dictionary": ("dictionary", "no", "pairs"),
        "--gold": ("gold", "no"),
        "--one-based": None,
        "--pairs": ("1", "0", "x"),
        "--seed": SEEDS,
        "--by": ("words", "spaces", "no"),
        "--out": ("probe", "pairs", "/proc/x"),
        "--html": ("p.html", "p.no", "no/p.html"),
        "--show": None,
        "--device": DEVICES,
        "--engine": ("local", "no"),
        "--workers": ("1", "0", "x"),
        "--json": None,
    },
    "explore": {
        "--save": ("e.html", "e.no", "no/e.html", "/dev/full"),
        "--no-open": None,
        "--json": None,
    },
    "reproduce": {
        "--out": ("report", "/dev/null", "pairs"),
        "--seed": SEEDS,
        "--full": None,
        "--resume": None,
        "--check": None,
        "--list": None,
        "--json": None,
    },
    "train": {
        "--recipe": ("no", "nearest-0", "sort-beyond-99999999999", "", "../x"),
        "--out": ("t", "/dev/null"),
        "--seed": SEEDS,
        "--ensemble": ("0", "-1", str(10**9), "x"),
        "--steps": ("0", "-1", "x", "9" * 20),
        "--device": DEVICES,
        "--resume": None,
        "--list": None,
        "--json": None,
    },
    "bench": {
        "--out": ("b", "/dev/null"),
        "--family": ("no",),
        "--peer": ("no",),
        "--n": ("0", "x"),
        "--reg": ("0", "nan"),
        "--limit": ("0", "nan", "x"),
        "--rounds": ("0", "-1", "x"),
        "--threads": ("0", "x"),
        "--seed": SEEDS,
        "--append": None,
        "--json": None,
    },
}
