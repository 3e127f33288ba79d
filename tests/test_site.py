"""The site: it builds without a warning, loads nothing from elsewhere, and every link and command on it works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import otformer
from helpers.browser import Browser
from otformer.cli.main import main

ROOT = Path(__file__).parents[1]
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src", "link": "href"}
ADDRESS = re.compile(r"url\(\s*['\"]?(?P<css>[^)'\"]+)|@import\s+['\"](?P<imported>[^'\"]+)")


class Read(HTMLParser):
    """What a page loads, where its links lead, and which places it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.places |= {found[name] for name in ("id", "name") if name in found}
        if LOADS.get(tag) in found:
            self.loads.append(found[LOADS[tag]])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as `make docs` builds it: a warning is an error."""
    place = tmp_path_factory.mktemp("site")
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (place / "404.html").unlink()  # for servers: its addresses begin at their root
    return place


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    loaded = {(page, address) for page in pages for address in Read(page).loads}
    for sheet in site.rglob("*.css"):
        loaded |= {(sheet, found["css"] or found["imported"]) for found in ADDRESS.finditer(sheet.read_text("utf-8"))}
    for page, address in loaded:
        parts = urlsplit(address)
        assert not parts.netloc, f"{page.relative_to(site)} loads {address}"
        assert parts.scheme in ("", "data"), address
        assert parts.scheme == "data" or not parts.path or (page.parent / unquote(parts.path)).exists(), (page, address)


@pytest.mark.slow
def test_links_lead_to_a_page_and_a_place_on_it(site):
    read = {page.resolve(): Read(page) for page in site.rglob("*.html")}
    assert sum(len(found.links) for found in read.values()) > 1000
    for page, found in read.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme == "https", (page, link)
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{page.name}: {link}"
            if parts.fragment and target in read:
                assert unquote(parts.fragment) in read[target].places, f"{page.name}: {link}"


@pytest.mark.slow
def test_every_erratum_theorem_and_claim_has_a_place(site):
    def places(name: str) -> set[str]:
        return Read(site / f"{name}.html").places

    text = {name: (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("errata", "theorems", "limits", "paper")}
    errata = {f"erratum-{number}" for number in re.findall(r"^\*\*(\d+)\. ", text["errata"], re.MULTILINE)}
    assert len(errata) == 43
    assert errata <= places("errata")
    for name in ("theorems", "limits"):
        letters = re.findall(r"^## ([A-Z])⁺?\. ", text[name], re.MULTILINE)
        numbered = re.findall(r"^\*\*Theorem ([A-Z])\.(\d)", text[name], re.MULTILINE)
        wanted = {f"theorem-{'-'.join(each).lower()}" for each in [*letters, *numbered]}
        assert len(wanted) >= 5
        assert wanted <= places(name), wanted - places(name)
    claims, ours, corrections = re.split("## Our claims|## Errata, by subject", text["paper"])
    for kind, table in (("claim", claims), ("our-claim", ours), ("correction", corrections)):
        rows = {f"{kind}-{number}" for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
        assert len(rows) > 3
        assert rows <= places("paper"), rows - places("paper")


@pytest.mark.slow
def test_the_reference_has_every_public_name(site):
    places = set().union(*(Read(page).places for page in (site / "reference").glob("*.html")))
    wanted = {*otformer.__all__, "nn.Transport", "nn.SoftSort", *(f"words.{name}" for name in otformer.words.__all__)}
    wanted -= {"nn", "words"}  # modules
    assert wanted <= places, wanted - places


@pytest.mark.slow
def test_pages_in_a_browser_without_a_network(site):
    browser = Browser()
    try:
        pages = ("index", 390, True), ("paper", 390, False), ("gallery/index", 1280, True), ("notebooks/pot", 1280, False)
        for name, width, dark in pages:
            browser.open(site / f"{name}.html", width=width, dark=dark)
            assert not browser.wide(), name
            assert browser.complaints() == browser.requests() == [], name
            assert browser.faults() == [], name
        browser.open(site / "paper.html", width=1300)
        cut = "return [...document.querySelectorAll('.md-typeset__scrollwrap')].map(e => e.scrollWidth - e.clientWidth)"
        assert max(browser.js(cut)) <= 1, "the table of claims is wider than the page"
        browser.click("input.md-search__input")
        ready = "while (document.querySelector('.md-search-result__meta').textContent.includes('Initializing'))"
        browser.js(f"{ready} await new Promise(later => setTimeout(later, 50))")
        browser.type("input.md-search__input", "sinkhorn")
        hits = "document.querySelectorAll('.md-search-result__item').length"
        browser.js(f"while (!{hits}) await new Promise(later => setTimeout(later, 50))")
        assert browser.js(f"return {hits}") > 3
        assert browser.requests() == []
    finally:
        browser.close()


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if SHELL.search(p.read_text("utf-8"))], ids=lambda p: p.stem)
def test_commands_of_a_page_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = "".join(SHELL.findall(page.read_text("utf-8"))).splitlines()
    assert any(command.startswith("otformer ") for command in commands)
    for command in commands:
        if not command.startswith("otformer "):
            subprocess.run(["bash", "-c", command], check=True, timeout=60)
            continue
        monkeypatch.setattr(sys, "argv", shlex.split(command, comments=True))
        code = None
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        assert not code, f"{command}\n{capsys.readouterr().err}"
    assert capsys.readouterr().out
