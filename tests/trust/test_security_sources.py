"""What no source file may do: run code that came as data, start a shell, fetch a model's code, listen to the network.

Pickle has one place, words/jobs/ray_engine.py, where chunks and results travel between our own process and the Ray
workers it started; the local engine's processes (multiprocessing) pickle in the same way. Neither reads a pickle from a
file. Outside the package, the script bench/aligners_systems.py keeps what it has trained in a folder that its user names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import otformer

SRC = Path(otformer.__file__).parent
FILES = sorted([*SRC.rglob("*.py"), *(SRC.parents[1] / "bench").rglob("*.py"), *(SRC.parents[1] / "proofs").rglob("*.py")])
MODULES = {
    *("pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code", "codeop"),
    *("socket", "socketserver", "http.server", "asyncio", "ftplib", "telnetlib", "smtplib", "xmlrpc", "urllib.request"),
    *("requests", "httpx", "yaml", "tarfile", "pty"),
}
ALLOWED = {("words/jobs/ray_engine.py", "pickle"), ("bench/aligners_systems.py", "pickle")}
ALLOWED |= {("bench/trust_peers.py", "np.load")}  # shows what it does to a file of its own making
NAMES = {"eval", "exec", "compile", "input", "__import__", "breakpoint"}
CALLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pickle.load", "pandas.read_pickle"}
STARTED = ("os.exec", "os.spawn", "os.posix_spawn")
OPTIONS = {  # calls by the end of their name: the option that must be given as a constant, and its value
    "from_pretrained": ("trust_remote_code", False),
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "read_array": ("allow_pickle", False),
}


def complaints(text: str, place: str) -> Iterator[str]:
    """What a source text does that it may not."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            given = [each.name for each in node.names]
            whole = given if isinstance(node, ast.Import) else [str(node.module), *(f"{node.module}.{n}" for n in given)]
            for name in (n for n in whole if n in MODULES or n.partition(".")[0] in MODULES):
                if (place, name.partition(".")[0]) not in ALLOWED:
                    yield f"{place}:{node.lineno}: imports {name}"
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        options = {option.arg: option.value for option in node.keywords}
        if name in NAMES | CALLS or name.startswith(STARTED):
            yield f"{place}:{node.lineno}: calls {name}"
        if "import_module" in name and node.args and ast.unparse(node.args[0]).strip("'\"").partition(".")[0] in MODULES:
            yield f"{place}:{node.lineno}: imports {ast.unparse(node.args[0])}"
        shell = options.get("shell")
        if shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
            yield f"{place}:{node.lineno}: shell={ast.unparse(shell)}"
        for end, (option, wanted) in OPTIONS.items():
            value = options.get(option)
            right = isinstance(value, ast.Constant) and value.value is wanted
            if (name == end or name.endswith(f".{end}")) and not right and (place, name) not in ALLOWED:
                yield f"{place}:{node.lineno}: {name} without {option}={wanted}"


HOSTILE = [
    "import pickle",
    "from pickle import loads",
    "from http import server",
    "def f():\n    import socket",
    "importlib.import_module('pickle')",
    "eval('1')",
    "exec(text)",
    "os.system('ls')",
    "os.execv('/bin/sh', [])",
    "subprocess.run('ls', shell=True)",
    "subprocess.run('ls', shell=flag)",
    "torch.load(file)",
    "torch.load(file, weights_only=False)",
    "np.load(file)",
    "np.load(file, allow_pickle=True)",
    "AutoModel.from_pretrained(name)",
    "AutoModel.from_pretrained(name, **options)",
    "AutoModel.from_pretrained(name, trust_remote_code=True)",
]
HARMLESS = [
    "model.eval()",
    "re.compile('a')",
    "subprocess.run(['ls'])",
    "np.load(file, allow_pickle=False)",
    "M.from_pretrained(n, trust_remote_code=False)",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_the_reader_of_sources_finds_what_it_is_for(text):
    assert len(list(complaints(text, "some/file.py"))) >= 1


@pytest.mark.parametrize("text", HARMLESS)
def test_the_reader_of_sources_lets_the_rest_be(text):
    assert not list(complaints(text, "some/file.py"))


def test_no_source_runs_what_came_as_data():
    assert len(FILES) > 250
    found = [line for file in FILES for line in complaints(file.read_text("utf-8"), _place(file))]
    assert not found, "\n".join(found)


def _place(file: Path) -> str:
    return str(file.relative_to(SRC) if file.is_relative_to(SRC) else file.relative_to(SRC.parents[1]))
