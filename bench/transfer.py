"""How well spans and tags get from one side of a translation to the other (otformer transfer):

    OTFORMER_DATA=… python bench/transfer.py

prints two tables. Spans: random spans of 1 to 6 source words of Hansards (English to French) and RWTH (German to English),
both ways; where they belong are the target words from the first to the last that a sure link of the gold joins with a word
inside. Compared are the links of `align`, all sure and possible links of the gold, and the words at the same relative
position. F1 is of target words, over all spans; exact is the share of spans that are the same. Spans without a sure link are
not counted.

Tags: random sentences with nested tags, leaves and entities and random links. A violation is a result that lacks a tag or
has one twice, that has another text than the target, that is not well-formed, or whose tree is not the source's.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from typing import Any
from xml.etree import ElementTree

from aligners_text import Set, gold_set

from otformer.words.aligning import align
from otformer.words.projection.labels import projected_spans
from otformer.words.projection.markup import parse
from otformer.words.projection.transferring import transfer
from otformer.words.text.gold import Links

Span = tuple[int, int]
LONGEST = 6  # words of a span
LETTERS = (
    "a",
    "Ä",
    "e\u0301",
    "ß",
    "猫",
    "שלום",
    "مرحبا",
    "😀",
    "❤\ufe0f",
    "&",
    "<",
    ">",
    '"',
    "'",
    "1",
    ".",
    "-",
    "\u200b",
)
TAG = re.compile(r"<!--.*?-->|<\?.*?\?>|<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>")


def linked_span(span: Span, links: Links) -> Span | None:
    """The target words that links join with a span, as `transfer` takes them."""
    found = projected_spans([(*span, "")], dict.fromkeys(sorted(links), 1.0))
    return (found[0][0], found[0][1]) if found else None


def same_position(span: Span, n: int, m: int) -> Span:
    """The target words at the same relative position; one at least.

    >>> same_position((1, 2), 4, 8)
    (2, 4)
    """
    start = min(round(span[0] * m / n), m - 1)
    return start, max(start + 1, round(span[1] * m / n))


def rates(found: Sequence[Span | None], gold: Sequence[Span]) -> tuple[float, float]:
    """F1 of words over all spans, and the share of spans that are exact.

    >>> rates([(0, 2), None, (3, 4)], [(0, 1), (1, 2), (3, 4)])      # of 3 words and of 3, two are shared
    (0.6666666666666666, 0.3333333333333333)
    """
    sets = [(set(range(*(a or (0, 0)))), set(range(*b))) for a, b in zip(found, gold, strict=True)]
    shared, both = sum(len(a & b) for a, b in sets), sum(len(a) + len(b) for a, b in sets)
    return 2 * shared / both, sum(a == b for a, b in sets) / len(sets)


def span_rows(name: str, given: Set, languages: str, methods: Sequence[str], rng: random.Random, draws: int) -> list[str]:
    """Rows of the table for spans of the source of a gold set."""
    pairs = [(" ".join(e), " ".join(f)) for e, f in given.words]
    systems: dict[str, list[Links]] = {f"align, {each}": align(pairs, languages, each, "spaces") for each in methods}  # type: ignore[dict-item]
    systems["gold, sure and possible"] = [gold.possible for gold in given.gold]
    drawn = []
    for number, ((e, _), gold) in enumerate(zip(given.words, given.gold, strict=True)):
        for _ in range(draws if e else 0):
            size = rng.randint(1, min(LONGEST, len(e)))
            start = rng.randint(0, len(e) - size)
            right = linked_span((start, start + size), gold.sure)
            if right is not None:
                drawn.append((number, (start, start + size), right))
    gold_spans = [right for *_, right in drawn]
    found = {each: [linked_span(span, links[k]) for k, span, _ in drawn] for each, links in systems.items()}
    found["same relative position"] = [same_position(span, *map(len, given.words[k])) for k, span, _ in drawn]
    rows = []
    for system, spans in found.items():
        f1, exact = rates(spans, gold_spans)
        rows.append(f"| {name} | {system} | {len(drawn):,} | {100 * f1:.1f} | {100 * exact:.1f} |")
    return rows


def turned(given: Set) -> Set:
    """A gold set in the other direction."""
    gold = [type(each)(*(frozenset((j, i) for i, j in links) for links in each)) for each in given.gold]
    return given._replace(words=[(f, e) for e, f in given.words], gold=gold)


def random_sentence(rng: random.Random, most: int) -> str:
    words = ("".join(rng.choices(LETTERS, k=rng.randint(1, 3))) for _ in range(rng.randint(0, most)))
    return " ".join(words)


def random_markup(rng: random.Random, text: str) -> str:
    """A text as XML with elements, leaves and comments at random places, within words as well; every tag has its number."""
    count = iter(range(10**6))

    def marked(inside: str, depth: int) -> str:
        at, made = 0, []
        while at < len(inside) or not made:
            size = rng.randint(0, len(inside) - at)
            part, kind = inside[at : at + size], rng.random()
            if kind < 0.4 and depth < 6:
                name = rng.choice(("b", "i", "span", "p", "x:y"))
                made.append(f"<{name} n='{next(count)}' t=\"a>b\">{marked(part, depth + 1)}</{name}>")
            elif kind < 0.6:
                made.append(rng.choice((f"<br n='{next(count)}'/>", f"<!--{next(count)} <b>-->", f"<?p {next(count)}?>")))
                size = 0
            else:
                made.append(escape(part))
            at += size
            if len(made) > 12:
                made.append(escape(inside[at:]))
                break
        return "".join(made)

    return marked(text, 0)


def parsed(xml: str) -> ElementTree.Element:
    """A piece of XML, read by Python's own parser, with comments and processing instructions."""
    builder = ElementTree.TreeBuilder(insert_comments=True, insert_pis=True)
    return ElementTree.fromstring(f"<r xmlns:x='y'>{xml}</r>", ElementTree.XMLParser(target=builder))


def text_of(element: ElementTree.Element) -> str:
    """The text in an element, without comments and processing instructions."""
    own = (element.text or "") if isinstance(element.tag, str) else ""
    return own + "".join(text_of(each) + (each.tail or "") for each in element)


def tree(element: ElementTree.Element) -> Any:
    """An element with those in it, without text and order."""
    leaf = "" if isinstance(element.tag, str) else element.text
    return str(element.tag), leaf, sorted(element.attrib.items()), sorted(map(tree, element))


def violations(rng: random.Random) -> list[str]:
    """What is wrong with the transfer of a random sentence to another by random links."""
    source, target = random_sentence(rng, 12), random_sentence(rng, 12)
    markup = random_markup(rng, source)
    n, m = len(parse(markup).text.split()), len(target.split())
    links = [(i, j) for i in range(n) for j in range(m) if rng.random() < 1.5 / max(n, m)]
    result = transfer([(markup, target)], by="spaces", links=[links])[0]
    checks: dict[str, Callable[[], bool]] = {
        "tags": lambda: Counter(TAG.findall(result)) == Counter(TAG.findall(markup)),
        "text": lambda: text_of(parsed(result)) == target,
        "tree": lambda: tree(parsed(result)) == tree(parsed(markup)),
    }
    wrong = []
    for name, check in checks.items():
        try:
            wrong += [] if check() else [name]
        except ElementTree.ParseError:
            wrong.append("form")
    return [f"{name}: {markup!r} ||| {target!r} gave {result!r}" for name in wrong]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["hmm"])
    parser.add_argument("--draws", type=int, default=10, help="spans of each sentence")
    parser.add_argument("--sentences", type=int, default=10_000, help="with random tags")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    print("| gold | links | spans | F1 | exact |\n|---|---|---|---|---|")
    for languages in ("en-fr", "de-en"):
        given = gold_set(languages)
        for each, way in ((given, languages), (turned(given), "-".join(reversed(languages.split("-"))))):
            print("\n".join(span_rows(f"{given.name}, {way}", each, way, asked.methods, rng, asked.draws)), flush=True)
    began, wrong = time.perf_counter(), []
    for _ in range(asked.sentences):
        wrong += violations(rng)
    took = time.perf_counter() - began
    print(f"\n{asked.sentences:,} random sentences with tags: {len(wrong)} violations ({took:.0f} s)")
    print("\n".join(wrong[:5]))


if __name__ == "__main__":
    main()
