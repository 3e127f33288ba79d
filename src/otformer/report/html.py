"""The report: one page from what experiments left in a folder. It needs no network and no script."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from otformer.figures import SCRIPT
from otformer.files import written
from otformer.report.claims import GROUPS, Claim, counted, read

ROWS_SHOWN = 60  # rows of a CSV that the page shows


def write_report(out: str | Path) -> Path:
    """Write ``out/index.html`` from every ``out/*/run.json``; returns its path. Written whole or not at all."""
    folder = Path(out)
    found = (json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("[!.]*/run.json"))
    records = sorted(found, key=lambda record: (record["position"], record["name"]))
    versions = dict.fromkeys(", ".join(f"{k} {v}" for k, v in record["versions"].items()) for record in records)
    held, asked = count_checks(records)
    page = Template(files("otformer.report").joinpath("report.html").read_text(encoding="utf-8")).substitute(
        banner=_banner(records),
        summary=_summary({record["name"] for record in records}),
        contents="\n".join(_entry(record) for record in records),
        sections="\n".join(_section(record, folder) for record in records),
        count=len(records),
        held=held,
        asked=asked,
        seconds=f"{sum(record['seconds'] for record in records):.0f}",
        versions=escape("; ".join(versions)),
    )
    with written(folder / "index.html") as out_file:
        out_file.write(page.encode())
    return folder / "index.html"


def scripts(text: str) -> str:
    """The text escaped for HTML, its scripts (`figures.SCRIPT`) as ``<sub>`` and ``<sup>``.

    >>> scripts("P*_λ < n^{3/2}, the state_dict")
    'P*<sub>λ</sub> &lt; n<sup>3/2</sup>, the state_dict'
    """
    tags = {"_": "sub", "^": "sup"}
    return SCRIPT.sub(lambda f: "<{0}>{1}</{0}>".format(tags[f["mark"]], f["braced"] or f["plain"]), escape(text))


def count_checks(records: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """How many checks hold, of how many, in the records that ``run.json`` files hold.

    >>> count_checks([{"checks": {"a": True, "b": False}}, {"checks": {"c": True}}])
    (2, 3)
    """
    found = [held for record in records for held in record["checks"].values()]
    return sum(found), len(found)


def _entry(record: dict[str, Any]) -> str:
    """A line of the table of contents."""
    passed, total = count_checks([record])
    mark = "ok" if passed == total else "no"
    return (
        f'<li><a href="#{escape(record["name"])}">{escape(record["title"])}</a> '
        f'<span class="source">{scripts(record["source"])}</span> <span class="{mark}">{passed}/{total}</span></li>'
    )


def _banner(records: list[dict[str, Any]]) -> str:
    """The checks that failed, at the top of the page: a line to unfold for every section; nothing if none did."""
    held, asked = count_checks(records)
    count, lines = asked - held, []
    for record in records:
        failed = [scripts(text) for text, held in record["checks"].items() if not held]
        link = f'<a href="#{escape(record["name"])}">{escape(record["title"])}</a>'
        head = f"<summary>{link}: {len(failed)} of {len(record['checks'])}</summary>"
        lines += [f"<li><details>{head}<ul><li>{'</li><li>'.join(failed)}</li></ul></details></li>"] if failed else []
    if not count:
        return ""
    words = "1 check does" if count == 1 else f"{count} checks do"
    about = "Claims of the paper or ours that these measurements do not bear out; nothing is wrong with the installation."
    listed = "\n".join(lines)
    return f'<div class="banner" role="alert"><b>✗ {words} not hold</b> {about}\n<ul>\n{listed}\n</ul></div>'


def _summary(shown: set[str]) -> str:
    """What became of every claim: the paper's, ours and the errata apart, a table to unfold for each."""
    claims, parts = read(), []
    for group, heading in GROUPS.items():
        rows = [claim for claim in claims if claim.group == group]
        body = "\n".join(_claim(claim, shown) for claim in rows)
        head = "<tr><th>item</th><th>claim</th><th>verdict</th><th>what we found</th><th>shown by</th></tr>"
        table = f'<div class="scroll"><table class="claims"><thead>{head}</thead><tbody>{body}</tbody></table></div>'
        parts.append(f"<details><summary>{heading}: {len(rows)}, {counted(rows)}</summary>{table}</details>")
    return "\n".join(parts)


def _claim(claim: Claim, shown: set[str]) -> str:
    """A row of the summary; what shows it is a link where this page has that section."""
    command = f"<code>{escape(claim.command)}</code>"
    link = f'<a href="#{claim.experiment}">{command}</a>' if claim.experiment in shown else command
    cells = (scripts(cell.replace("`", "")) for cell in (claim.item, claim.claim, claim.verdict, claim.finding))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}<td>{link}</td></tr>"


def _section(record: dict[str, Any], folder: Path) -> str:
    """Claim, figure, summary, checks and links of one experiment."""
    name = escape(record["name"])
    checks = "\n".join(
        f'<li class="{mark}"><b aria-label="{word}">{sign}</b> {scripts(text)}</li>'
        for text, held in record["checks"].items()
        for mark, word, sign in [("ok", "held", "✓") if held else ("no", "did not hold", "✗")]
    )
    size = "full size" if record["full"] else "quick size"
    failed = "" if all(record["checks"].values()) else ' class="failed"'
    return f"""<section id="{name}"{failed}>
<h2>{escape(record["title"])}</h2>
<p class="claim"><span class="label">{scripts(record["source"])}</span> {scripts(record["claim"])}</p>
<figure><a href="{name}/figure.svg"><img src="{name}/figure.png" alt="{escape(record["title"])}" loading="lazy"></a></figure>
<p>{scripts(record["summary"])}</p>
<ul class="checks">
{checks}
</ul>
<details><summary>Numbers</summary>{_table(folder / record["name"] / "numbers.csv")}</details>
<p class="links"><code>otformer reproduce {name}</code> · seed {record["seed"]}, {size}, {record["seconds"]:.1f} s ·
<a href="{name}/numbers.csv">CSV</a> · <a href="{name}/run.json">JSON</a> · <a href="{name}/figure.svg">SVG</a></p>
</section>"""


def _table(path: Path) -> str:
    """The first rows of a CSV as an HTML table."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    head = "".join(f"<th>{scripts(cell)}</th>" for cell in header)
    cells = ("".join(f"<td>{scripts(_short(cell))}</td>" for cell in row) for row in rows[:ROWS_SHOWN])
    body = "\n".join(f"<tr>{row}</tr>" for row in cells)
    more = f"<p>{len(rows) - ROWS_SHOWN} more rows in the CSV.</p>" if len(rows) > ROWS_SHOWN else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _short(cell: str) -> str:
    """A number at four significant digits; anything else as it is."""
    try:
        return cell if cell.lstrip("-").isdigit() else f"{float(cell):.4g}"
    except ValueError:
        return cell or "–"
