"""Gold and text of language pairs that do not ship, in the folders that bench/own_text.py reads:

    python bench/own_text_data.py --clones CLONES --out OWN     # CLONES has clones of the repositories below, by their names

    ja-en         gold of KFTT (awesome-align), its training text (cicada, 30,000 pairs)
    cs-en         gold of CzEnAli (binaryalign), WMT news and Tatoeba tests (OPUS-MT-testsets), captions (multi30k/dataset)
    es-en         gold of Europarl (binaryalign), WMT news and Tatoeba tests (OPUS-MT-testsets)
    he-fi, grc-fi verses of the Bible and their gold (HELFI), 500 of them the test
    fr-en-stories gold of five stories (AlibiWordAlignments), parts of novels (TransReadAlignments), news and Tatoeba tests

of amikael/HELFI, Helsinki-NLP/OPUS-MT-testsets, neulab/awesome-align, loganbrenningmeyer/binaryalign, tarowatanabe/cicada,
multi30k/dataset, fyvo/AlibiWordAlignments and fyvo/TransReadAlignments. A folder NAME/ holds train.src, train.tgt, test.src,
test.tgt, words with spaces between them, in lower case, and test.gold: links from 0, ``i-j`` sure, ``ipj`` possible. No
training pair has a side that is a test sentence; its pairs are shuffled, so that the first n are of all kinds.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import random
import re
import subprocess
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from otformer.files import written

Words = list[str]
Test = tuple[Words, Words, list[str]]  # both sentences and their links
Text = tuple[list[Test], list[tuple[Words, Words]]]  # test and training pairs
WORD = re.compile(r"n't\b|'\w+|\w+?(?=n't\b)|\w+|[^\w\s]")
FRENCH = re.compile(r"\w+'|\w+(?:-\w+)*|[^\w\s]")
TESTED = 500  # verses


def tokens(line: str) -> Words:
    """Words and marks of raw text, as the gold of WMT and Europarl has them."""
    return WORD.findall(line.replace("’", "'"))


def french(line: str) -> Words:
    return FRENCH.findall(line.replace("’", "'"))


class Clone:
    """A repository, of which files are read at HEAD."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _git(self, *given: str) -> bytes:
        return subprocess.run(["git", "-C", str(self.folder), *given], check=True, capture_output=True).stdout

    def names(self, under: str) -> list[str]:
        return self._git("ls-tree", "-r", "-z", "--name-only", "HEAD", under).decode().split("\0")[:-1]

    def lines(self, file: str) -> list[str]:
        data = self._git("show", f"HEAD:{file}")
        unpack = {".bz2": bz2.decompress, ".gz": gzip.decompress}.get(Path(file).suffix, bytes)
        return unpack(data).decode().rstrip("\n").split("\n")


def side_by_side(clone: Clone, first: str, second: str, *cut: Callable[[str], Words]) -> list[tuple[Words, Words]]:
    one, other = cut or (str.split, str.split)
    return [(one(e), other(f)) for e, f in zip(clone.lines(first), clone.lines(second), strict=True)]


def tests_of_opus(clones: Path, folder: str, other: str, cut: Callable[[str], Words]) -> Iterator[tuple[Words, Words]]:
    """News and Tatoeba tests of another language and English."""
    clone = Clone(clones / "OPUS-MT-testsets")
    for file in clone.names(f"testsets/{folder}/"):
        if file.endswith(f".{other}") and Path(file).name.startswith(("news", "tatoeba-test-v2021-08-07")):
            yield from side_by_side(clone, file, f"{file.removesuffix(other)}eng", cut, tokens)


def binary_align(clones: Path, name: str) -> list[Test]:
    """Gold of English and another language, turned so that the other comes first; all links are sure."""
    files = [f"datasets/processed/{part}/{name}.jsonl" for part in ("train", "valid")]
    read = [json.loads(line) for file in files for line in Clone(clones / "binaryalign").lines(file)]
    return [(r["tgt_words"], r["src_words"], [f"{j}-{i}" for i, j in r["alignment"]]) for r in read]


def japanese(clones: Path) -> Text:
    clone = Clone(clones / "awesome-align")
    test = []
    for pair, gold in zip(clone.lines("examples/jaen.src-tgt"), clone.lines("examples/jaen.gold"), strict=True):
        e, f = pair.split("|||")
        links = [tuple(int(k) - 1 for k in re.split("[-p]", link)) for link in gold.split()]
        test.append((e.split(), f.split(), [f"{i}-{j}" for i, j in links]))
    where = "samples/kftt.30k/data/train"
    return test, side_by_side(Clone(clones / "cicada"), f"{where}.ja.bz2", f"{where}.en.bz2")


def czech(clones: Path) -> Text:
    where = "data/task1/raw/train"
    text = [*tests_of_opus(clones, "ces-eng", "ces", tokens)]
    text += side_by_side(Clone(clones / "dataset"), f"{where}.cs.gz", f"{where}.en.gz", tokens, tokens)
    return binary_align(clones, "en-cz/czenali"), text


def spanish(clones: Path) -> Text:
    return binary_align(clones, "en-es/es_golden"), [*tests_of_opus(clones, "eng-spa", "spa", tokens)]


def bible(folder: str, verses: Callable[[str], tuple[str, str]]) -> Callable[[Path], Text]:
    """Verses of HELFI: words of the original from their numbered parts, Finnish words with the numbers they translate."""

    def read(clones: Path) -> Text:
        clone, left, right = Clone(clones / "HELFI"), {}, {}
        for file in clone.names(f"{folder}/"):
            for verse, number, _, _, surface, *_ in (
                line.split("\t") for line in clone.lines(file) if line.count("\t") >= 5
            ):
                key, word = (
                    verses(number),
                    "".join(c for c in surface.strip("־׃׀ ") if unicodedata.category(c) != "Mn" or folder[0] == "G"),
                )
                words = left.setdefault(verse, {})
                words[key] = words.get(key, "") + word.replace(" ", "_")
        for file in clone.names("Finnish1938/fi-FABC-2020m3-all/"):
            for verse, numbers, _, kind, surface in (
                line.split("\t") for line in clone.lines(file) if line.count("\t") == 4
            ):
                if verse in left and kind != "VERSE":
                    words, links = right.setdefault(verse, ([], []))
                    place, text = {key: k for k, key in enumerate(left[verse])}, surface.replace("␣", " ").strip()
                    if text:
                        words.append(text)
                    for bracket, number in re.findall(r"([(%]?)(\d+[a-z]?)", numbers):
                        if words and (key := verses(number)) in place:
                            links.append(f"{place[key]}{'p' if bracket or not text else '-'}{len(words) - 1}")
        both = [(list(left[v].values()), *right[v]) for v in left if v in right]
        random.Random(0).shuffle(both)
        return both[:TESTED], [(e, f) for e, f, _ in both[TESTED:]]

    return read


def stories(clones: Path) -> Text:
    clone, novels, test = Clone(clones / "AlibiWordAlignments"), Clone(clones / "TransReadAlignments"), []
    text = [*tests_of_opus(clones, "eng-fra", "fra", french)]
    for file in clone.names("ali/"):
        if "/ali_w2w_" in file:
            one, other = file.split("ali_w2w_")[1][:-4].split("_")
            sides = [clone.lines(f"{Path(file).parent}/{name}_sents.txt") for name in (one, other)]
            for e, f, gold in zip(*sides, clone.lines(file), strict=True):
                test.append((e.split()[1:], f.split()[1:], gold.split()[1:]))
    for file in novels.names("dat/novels/"):
        if "EN-FR" in file and file.endswith("_fr.aligned"):
            text += side_by_side(novels, file, file.replace("_fr.", "_en."), french, str.split)
    return test, text


MADE: dict[str, Callable[[Path], Text]] = {
    "ja-en": japanese,
    "cs-en": czech,
    "es-en": spanish,
    "he-fi": bible("Hebrew1008", lambda number: re.sub(r"\D", "", number)),
    "grc-fi": bible("Greek1904", str),
    "fr-en-stories": stories,
}


def bare(words: Words) -> str:
    return "".join(filter(str.isalnum, "".join(words)))


def lower(words: Words) -> Words:
    return [word.lower().replace("’", "'") for word in words]


def write(folder: Path, test: Iterable[Test], text: Iterable[tuple[Words, Words]]) -> tuple[int, int]:
    kept = [(lower(e), lower(f), links) for e, f, links in test if e and f and links]
    tested = {bare(side) for e, f, _ in kept for side in (e, f)}
    training = dict.fromkeys((" ".join(lower(e)), " ".join(lower(f))) for e, f in text if e and f)
    pairs = [(e, f) for e, f in training if not tested & {bare(e.split()), bare(f.split())}]
    random.Random(0).shuffle(pairs)
    folder.mkdir(parents=True, exist_ok=True)
    columns: dict[str, Sequence[str]] = {"train.src": [e for e, _ in pairs], "train.tgt": [f for _, f in pairs]}
    columns |= {"test.src": [" ".join(e) for e, _, _ in kept], "test.tgt": [" ".join(f) for _, f, _ in kept]}
    columns["test.gold"] = [" ".join(dict.fromkeys(links)) for _, _, links in kept]
    for name, lines in columns.items():
        with written(folder / name) as stream:
            stream.write("".join(f"{line}\n" for line in lines).encode())
    return len(kept), len(pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(MADE), default=list(MADE))
    given = parser.parse_args()
    for name in given.only:
        tested, trained = write(given.out / name, *MADE[name](given.clones))
        print(f"{name}: {tested:,} test pairs with gold, {trained:,} training pairs", flush=True)


if __name__ == "__main__":
    main()
