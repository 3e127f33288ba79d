"""The browser of the tests sees what it must: errors, requests to elsewhere, colours, widths, faults."""

from __future__ import annotations

from pathlib import Path

from helpers.browser import Browser

PAGE = """<!doctype html><html lang="en"><title>t</title><meta name="viewport" content="width=device-width">
<style>body {{ margin: 0 }}
@media (prefers-color-scheme: dark) {{ body {{ background: rgb(1, 2, 3); color: white }} }}</style>
<main><h1>A page</h1><input aria-label="a number" value="1">{more}</main></html>"""


def write(place: Path, more: str = "") -> Path:
    page = place / "page.html"
    page.write_text(PAGE.format(more=more), encoding="utf-8")
    return page


def test_a_quiet_page(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(tmp_path), "#here", width=390, dark=True)
    assert browser.js("return [location.hash, innerWidth]") == ["#here", 390]
    assert browser.js("return getComputedStyle(document.body).backgroundColor") == "rgb(1, 2, 3)"
    browser.type("input", "42")
    assert browser.js("return document.querySelector('input').value") == "42"
    assert (browser.complaints(), browser.requests(), browser.wide(), browser.faults()) == ([], [], False, [])
    browser.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes()[:4] == b"\x89PNG"


def test_what_is_wrong_is_seen(browser: Browser, tmp_path: Path) -> None:
    script = "<script>fetch('https://example.org/').catch(() => 0); undefined_name + 1</script>"
    browser.open(write(tmp_path, f"{script}<div style='width: 2000px'>wide</div><img src='data:,'>"), width=390)
    assert any("undefined_name" in line for line in browser.complaints())
    assert "https://example.org/" in browser.requests()
    assert browser.wide()
    assert any(fault.startswith("image-alt") for fault in browser.faults())
