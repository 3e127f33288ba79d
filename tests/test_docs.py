"""Every block of the README and the docs runs, page by page, as a reader would paste it; what sessions print is compared."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = re.compile(r"^```python\n(.*?)^```(?:\n+```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)  # and what it prints
NUMBER = re.compile(r"-?[\d.]*\d(e-\d+)?")
SESSION = re.compile(r"^```pycon\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+?)(#[^)]*)?\)")
ELSEWHERE = {"sharded.md": "run by torchrun in test_sharded.py", "layers.md": "trained in test_nn.py"}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("packages/*/README.md"))]
PAGES += sorted(ROOT.glob("docs/**/*.md"))


def pages(pattern: re.Pattern[str]) -> list[Path]:
    return [page for page in PAGES if pattern.search(page.read_text("utf-8")) and page.name not in ELSEWHERE]


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(SCRIPT), ids=lambda p: p.name)
def test_scripts_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block, shown in SCRIPT.findall(page.read_text("utf-8")):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(block, str(page), "exec"), names)
            if shown:
                compare(shown.split(), printed.getvalue().split())


def compare(shown: list[str], printed: list[str]) -> None:
    """Words are equal, numbers to 6 % or a unit of the first decimal; an error near rounding grows a hundredfold at most."""
    assert len(shown) == len(printed)
    for want, got in zip(shown, printed, strict=True):
        want, got = want.strip("[],"), got.strip("[],")
        if not NUMBER.fullmatch(want):
            assert got == want
        elif abs(float(want)) < 1e-5:
            assert abs(float(got)) <= 100 * abs(float(want)) + 1e-15
        else:
            assert float(got) == pytest.approx(float(want), rel=0.06, abs=0.11 if "." in want and "e" not in want else 0)


@pytest.mark.parametrize(
    ("shown", "printed"), [("a 2.0", "b 2.0"), ("2.0", "2.3"), ("1e-3", "2e-3"), ("1e-9", "1e-3"), ("1", "1 1")]
)
def test_other_output_is_found(shown, printed):
    with pytest.raises(AssertionError):
        compare(shown.split(), printed.split())


@pytest.mark.parametrize("page", pages(SESSION), ids=lambda p: p.name)
def test_sessions_print_what_they_say(page):
    text = "\n".join(SESSION.findall(page.read_text("utf-8")))
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0))
    assert runner.tries > 3
    assert runner.failures == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target, _ in LINK.findall(text):
        assert target.startswith("https://") or (page.parent / target).exists(), target
