"""The report: one page from what experiments left in a folder, for a reader of the paper. It needs no network and no script.

First the paper's claims and what became of each; then the sections in the paper's order, each with its finding as the
title, the figure, three sentences, the paper's number beside ours, and everything else to unfold; then our own questions,
and errata. Where the folder holds a few experiments, these come first, and of the claims those that they speak of.
"""

from __future__ import annotations

import os
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from urllib.parse import quote

import otformer
from otformer.figures import SCRIPT
from otformer.files import written
from otformer.lab.experiments.experiment import Experiment
from otformer.lab.experiments.registry import EXPERIMENTS
from otformer.lab.report import claims
from otformer.lab.report.claims import Claim, counted, path_of
from otformer.lab.report.records import Record, read_records, read_table, size_of_png

PARTS = {  # of the page: table of experiments.toml -> heading, and what stands below it
    "paper": ("The paper, in its order", "What the paper shows or states, and what it gives here."),
    "ours": ("Our own questions", "What the paper does not ask. Claims of this part are ours, not the paper's."),
    "errata": ("Errata", "Where the paper as printed is not right, and what the correction gives."),
}
FEW = 0.5  # share of all experiments below which a folder holds a few of them: who ran these wants to see them
ORDER = {  # of the page, by whether it shows a few
    False: "Here is what became of each claim, then every figure and statement in the paper's order.",
    True: "Here are the experiments that were run, then what became of each claim.",
}
TITLE, BEGINNING = b"<title>How do transformers align tokens?", 2000  # of every report, and where it is, in bytes
ROWS_SHOWN = 60  # rows of a CSV that the page shows
ROOT = Path(otformer.__file__).parents[2]  # of the repository, where the package is used from its source
FIRST_SHOWN = ("abstract", "figure", "contribution", "theorem", "open")  # how items begin that are not folded away
CHIPS = {"holds": "yes", "holds with a condition": "partly", "does not hold": "no", "open": "open"}  # verdict -> class


def check_page(out: str | Path) -> None:
    """Say before the work that ``out/index.html`` is someone else's page, which is not replaced."""
    page = Path(out) / "index.html"
    if page.is_file():
        with page.open("rb") as file:
            if TITLE not in file.read(BEGINNING):
                raise ValueError(
                    f"{page} is no report of this program, and would be replaced: move it, or name another folder"
                )


def write_report(out: str | Path) -> Path:
    """Write ``out/index.html`` from every ``out/*/run.json``; returns its path. Written whole or not at all."""
    folder = Path(out)
    records, strange = read_records(folder)
    order = {name: place for place, name in enumerate(EXPERIMENTS)}
    records.sort(key=lambda record: (order.get(record["name"], len(order)), record["position"], record["name"]))
    made = dict.fromkeys(", ".join(f"{k} {v}" for k, v in record["versions"].items()) for record in records)
    shown = {record["name"] for record in records}
    few = len(shown) < FEW * len(order)
    page = Template(files("otformer.lab.report").joinpath("report.html").read_text(encoding="utf-8")).substitute(
        order=ORDER[few],
        body=_body(records, shown, folder, few),
        count="1 experiment" if len(records) == 1 else f"{len(records)} experiments",
        seconds=f"{sum(record['seconds'] for record in records):.0f}",
        versions=escape("; ".join(made)),
        strange=_strange(strange),
    )
    with written(folder / "index.html", ours=True) as out_file:
        out_file.write(page.encode())
    return folder / "index.html"


def scripts(text: str) -> str:
    """The text escaped for HTML, its scripts (`figures.SCRIPT`) as ``<sub>`` and ``<sup>``.

    >>> scripts("P*_λ < n^{3/2}, the state_dict")
    'P*<sub>λ</sub> &lt; n<sup>3/2</sup>, the state_dict'
    """
    tags = {"_": "sub", "^": "sup"}
    return SCRIPT.sub(lambda f: "<{0}>{1}</{0}>".format(tags[f["mark"]], f["braced"] or f["plain"]), escape(text))


def _body(records: list[Record], shown: set[str], folder: Path, few: bool) -> str:
    """Claims, contents, sections; of a few experiments contents, sections, and claims last."""
    said = f"""<h2 id="claims">The paper's claims</h2>\n{_claims("paper", shown, folder, few)}"""
    contents = f'<nav aria-label="Contents"><h2>Contents</h2>\n<ol>\n{_contents(records)}\n</ol></nav>'
    parts = {part: _part(part, records, shown, folder, few) for part in (*PARTS, "")}
    if not few:
        return "\n".join((said, contents, *parts.values()))
    there = [text for text in parts.values() if "<section" in text]
    return "\n".join((contents, *there, said, *(text for text in parts.values() if text not in there)))


# The claims


def _claims(group: str, shown: set[str], folder: Path, few: bool) -> str:
    """A count and a table of the claims of a group.

    Those of the paper that are steps on the way are folded away; on a page of a few experiments all that these do not show.
    """
    rows = [claim for claim in claims.read() if claim.group == group]
    plain = [claim for claim in rows if group != "paper" or claim.item.startswith(FIRST_SHOWN)]
    first = [claim for claim in rows if claim.experiment in shown] if few else plain
    rest = [claim for claim in rows if claim not in first]
    about = "that are shown elsewhere" if few else "definitions, equations, remarks and steps of proofs"
    count = f'<p class="count"><b>{len(rows)} claims: {counted(rows)}.</b></p>'
    more = f"{len(rest)} {'claims' if few else 'more:'} {about} ({counted(rest)})"
    folded = f'<details class="more"><summary>{more}</summary>{_claim_table(rest, shown, folder)}</details>' if rest else ""
    return f"{count}\n{_claim_table(first, shown, folder) if first else ''}\n{folded}"


def _claim_table(rows: list[Claim], shown: set[str], folder: Path) -> str:
    says = "what the paper says" if rows and rows[0].line else "claim"
    names = ("place", says, "verdict", "what we found", "shown by")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "\n".join(_claim(claim, names, shown, folder) for claim in rows)
    return f'<table class="claims"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def _claim(claim: Claim, names: tuple[str, ...], shown: set[str], folder: Path) -> str:
    """A row of the table; what shows it is a link where this page has that section."""
    command = f"<code>{escape(claim.command)}</code>"
    link = f'<a href="#{claim.experiment}">{escape(claim.experiment)}</a>' if claim.experiment in shown else command
    said = [scripts(text.replace("`", "")) for text in (claim.item, claim.claim, claim.finding)]
    cells = (said[0], said[1], _chip(claim.verdict), said[2], f"{link}, {_page(claim.path, folder)}")
    labelled = (f'<td data-label="{name}">{cell}</td>' for name, cell in zip(names, cells, strict=True))
    return f"<tr>{''.join(labelled)}</tr>"


def _chip(verdict: str) -> str:
    return f'<span class="chip {CHIPS[verdict]}">{verdict}</span>'


def _page(path: str, folder: Path) -> str:
    """A file of the repository: a link where the page stands beside it, otherwise its name."""
    if not (ROOT / path).is_file():
        return f"<code>{escape(path)}</code>"
    return f'<a href="{quote(Path(os.path.relpath(ROOT / path, folder)).as_posix())}">{escape(Path(path).name)}</a>'


# The sections


def _contents(records: list[Record]) -> str:
    lines = (
        f'<li><a href="#{escape(record["name"])}">{scripts(_title(record))}</a> '
        f'<span class="source">{scripts(_place(record))}</span></li>'
        for record in records
    )
    return "\n".join(lines)


def _title(record: Record) -> str:
    return str(record["finding"]["title"] if record["finding"] else record["title"])


def _place(record: Record) -> str:
    """Where it stands in the paper, in short."""
    return str(record["source"]).removeprefix("paper, ")


def _part(part: str, records: list[Record], shown: set[str], folder: Path, few: bool) -> str:
    """A part of the page with the sections it has here; experiments that the page does not know come last."""
    parts = {experiment.name: experiment.part for experiment in EXPERIMENTS.values()}
    mine = [record for record in records if parts.get(record["name"], "") == part]
    if not mine and (not part or (few and part == "paper")):
        return ""
    heading, about = PARTS.get(part, ("Other experiments", "Found in the folder, and not known to this version."))
    table = _claims(part, shown, folder, few) if part in ("ours", "errata") else ""
    body = "\n".join(_section(record, EXPERIMENTS.get(record["name"]), folder) for record in mine)
    inside = f"{body}\n{table}" if few else f"{table}\n{body}"
    return f'<div class="part"><h2 id="part-{part or "other"}">{heading}</h2>\n<p>{about}</p>\n{inside}</div>'


def _section(record: Record, about: Experiment | None, folder: Path) -> str:
    """One experiment: what the paper says, finding, figure, three sentences, numbers side by side, the rest to unfold."""
    name, found = escape(record["name"]), record["finding"]
    brief = f"<p>{scripts(found['brief'])}</p>" if found else ""
    return f"""<section id="{name}" aria-labelledby="{name}-title">
<h3 id="{name}-title">{scripts(_title(record))}</h3>
<p class="claim"><span class="label">{scripts(_place(record))}</span> {scripts(record["claim"])}</p>
{_verdicts(record["name"])}
{_figure(record, about, folder)}
{brief}
{_beside(record, about, folder)}
{_details(record, about, folder)}
</section>"""


def _verdicts(name: str) -> str:
    """The claims that this section shows, with their verdicts."""
    shows = [claim for claim in claims.read() if claim.experiment == name]
    whose = {"paper": "", "ours": "ours: ", "errata": "errata: "}
    listed = (f"<li>{_chip(claim.verdict)} {whose[claim.group]}{scripts(claim.item)}</li>" for claim in shows)
    return f'<ul class="verdicts">{"".join(listed)}</ul>' if shows else ""


def _figure(record: Record, about: Experiment | None, folder: Path) -> str:
    """The picture, wide or narrow by the width of the window, with its size so that the page does not jump."""
    place = quote(record["name"])
    caption = f"<figcaption>{scripts(about.caption)}</figcaption>" if about else ""
    sizes = {file: _size(folder / record["name"] / file) for file in ("figure.png", "figure-narrow.png")}
    narrow = f'<source media="(max-width: 600px)" srcset="{place}/figure-narrow.png"{sizes["figure-narrow.png"]}>'
    image = f'<img src="{place}/figure.png"{sizes["figure.png"]} alt="{escape(_title(record))}">'
    given = narrow if sizes["figure-narrow.png"] else ""
    return f'<figure><a href="{place}/figure.svg"><picture>{given}{image}</picture></a>{caption}</figure>'


def _size(file: Path) -> str:
    found = size_of_png(file)
    return f' width="{found[0]}" height="{found[1]}"' if found else ""


def _beside(record: Record, about: Experiment | None, folder: Path) -> str:
    """The paper's number, ours and that of the full size, and the command for it."""
    if about is None or not record["finding"]:
        return ""
    command = f"<code>otformer reproduce {escape(record['name'])} --full</code>"
    size = "here, at full size" if record["full"] else "here"
    rows = [("the paper", scripts(about.paper)), (size, scripts(record["finding"]["number"]))]
    if not record["full"] and about.full:
        rows.append(("at full size", f"{scripts(about.full)} {command}, {_page(path_of(about.page), folder)}"))
    body = "".join(f'<tr><th scope="row">{name}</th><td>{cell}</td></tr>' for name, cell in rows)
    return f'<table class="beside"><tbody>{body}</tbody></table>'


def _details(record: Record, about: Experiment | None, folder: Path) -> str:
    """All numbers in words, what was checked, the table, sizes and files."""
    name, place = escape(record["name"]), quote(record["name"])
    checked = "\n".join(
        f"<li><b>{'yes' if held else 'no'}</b> {scripts(text)}</li>" for text, held in record["checks"].items()
    )
    sizes = ", ".join(f"{key} {value}" for key, value in record["settings"].items())
    one = record["full"] or (about is not None and about.one_size)
    size = "full size" if one else "default size"
    larger = "" if one else f" · full size: <code>otformer reproduce {name} --full</code>"
    return f"""<details><summary>Details, checks and numbers</summary>
<p>{scripts(record["summary"])}</p>
<p>Asked of the numbers of this run, and what they say:</p>
<ul class="checks">
{checked}
</ul>
<p class="meta">Sizes: {escape(sizes)}.</p>
{_table(folder / record["name"] / "numbers.csv")}
</details>
<p class="meta"><code>otformer reproduce {name}</code> · {size}, seed {record["seed"]:d}, {record["seconds"]:.1f} s{larger} ·
<a href="{place}/numbers.csv">CSV</a> · <a href="{place}/run.json">JSON</a> · <a href="{place}/figure.svg">SVG</a></p>"""


def _table(path: Path) -> str:
    """The first rows of a CSV as an HTML table."""
    found, more = read_table(path, ROWS_SHOWN)
    if not found:
        return "<p>numbers.csv cannot be read.</p>"
    header, *rows = found
    head = "".join(f'<th scope="col">{scripts(cell)}</th>' for cell in header)
    cells = ("".join(f"<td>{scripts(_short(cell))}</td>" for cell in row) for row in rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in cells)
    left = f"<p>{more} more rows in the CSV.</p>" if more else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Numbers">{table}</div>{left}'


def _short(cell: str) -> str:
    """A number at four significant digits; anything else as it is."""
    try:
        return cell if cell.lstrip("-").isdigit() else f"{float(cell):.4g}"
    except ValueError:
        return cell or "–"


def _strange(names: list[str]) -> str:
    listed = ", ".join(f"<code>{escape(name)}</code>" for name in names)
    return f'<p class="meta">Left out, since their run.json is none of this program: {listed}.</p>' if names else ""
