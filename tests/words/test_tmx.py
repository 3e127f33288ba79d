"""Translation memories: what a unit says, in files that other programs wrote or that are hostile."""

import gzip
import itertools
import re

import pytest

from otformer.words.text import tmx
from otformer.words.text.text import Pair
from otformer.words.text.tmx import is_tmx, read_tmx

HEAD = '<?xml version="1.0" encoding="{}"?>\n<!DOCTYPE tmx SYSTEM "file:///nowhere/tmx14.dtd">\n'


def memory(*units, encoding="UTF-8", head=HEAD):
    """The bytes of a file; a unit is [(language, segment as XML), …]."""
    made = "".join(
        f"<tu>{''.join(f'<tuv xml:lang={code!r}><seg>{segment}</seg></tuv>' for code, segment in unit)}</tu>\n"
        for unit in units
    )
    text = f'{head.format(encoding)}<tmx version="1.4"><header srclang="en"/><body>\n{made}</body></tmx>'
    return text.encode(encoding)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "memory.tmx"


CAT = [
    ("en-US", "The &lt;b&gt; <bpt i='1'>{\\b <sub>x</sub></bpt>black<ept i='1'>}</ept>\n cat &#233;"),
    ("fr", "Le <hi>chat</hi>"),
]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16", "ISO-8859-1"])
def test_units_are_pairs(file, encoding):
    units = [CAT, [("de", "Ja")], [("FR_ca", "Oui"), ("de", "Ja"), ("EN", "Yes")], [("en", "No"), ("fr", "")]]
    file.write_bytes(memory(*units, encoding=encoding))
    expected = [Pair("The <b> black cat é", "Le chat"), Pair("", ""), Pair("Yes", "Oui"), Pair("", "")]
    assert list(read_tmx(file, ("en", "fr"))) == expected
    assert list(read_tmx(file, ("fr", "en"))) == [pair[::-1] for pair in expected]
    assert list(read_tmx(file, ("de", "en"))) == [*[Pair("", "")] * 2, Pair("Ja", "Yes"), Pair("", "")]
    packed = file.with_name("memory.tmx.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert list(read_tmx(packed, ("en", "fr"))) == expected


def test_languages_are_those_of_the_first_unit_with_two(file):
    file.write_bytes(memory([("de", "Ja")], [("fr", "Oui"), ("en", "Yes")], [("en", "No"), ("fr", "Non")]))
    assert list(read_tmx(file)) == [Pair("", ""), Pair("Oui", "Yes"), Pair("Non", "No")]
    file.write_bytes(memory([("fr-CA", "Oui"), ("en", "Yes")], [("en-GB", "No"), ("fr", "Non")]))
    assert list(read_tmx(file)) == [Pair("Oui", "Yes"), Pair("Non", "No")]
    file.write_bytes(memory([("en-GB", "colour"), ("en-US", "color")]))
    assert list(read_tmx(file)) == [Pair("colour", "color")]


def test_a_file_is_streamed(file, monkeypatch):
    """The first pairs come before the end, which is broken here, is read."""
    file.write_bytes(memory(*[CAT] * 5000)[:-10] + b"<")
    pairs = read_tmx(file, ("en", "fr"))
    assert len({next(pairs) for _ in range(1000)}) == 1
    with pytest.raises(ValueError, match=r"memory\.tmx is not a readable TMX file"):
        list(pairs)


BOMB = '<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in itertools.pairwise("abcdefghij")
)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (memory(CAT, head=BOMB + "]>"), "memory.tmx must declare no entities, which may grow without end, got 'a'"),
        (memory(CAT, head='<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>'), "must declare no entities"),
        (memory(CAT, head='<!DOCTYPE tmx [<!ENTITY % x SYSTEM "http://a.org/x">%x;]>'), "must declare no entities"),
        (memory([("en", "&nowhere;")], head=""), "not a readable TMX file: undefined entity"),
        (memory([("en", "caf&eacute;")]), "memory.tmx must hold no entities but those of XML, got &eacute;"),
        (memory(CAT)[:-3], "memory.tmx is not a readable TMX file: unclosed token: line 6"),
        (b"", "not a readable TMX file: no element found: line 1"),
        (b"The cat ||| Le chat", "not a readable TMX file: syntax error: line 1, column 0"),
        (memory([("de", "Ja"), ("it", "Si")]), "memory.tmx must have a unit in en and fr, got units in de, it"),
        (memory(), "got units in no language"),
        (b"<?xml version='1.0' encoding='koi9'?><tmx/>", "not a readable TMX file: unknown encoding: koi9"),
        (b"<?xml version='1.0' encoding='shift_jis'?><tmx/>", "memory.tmx is not a readable TMX file: multi-byte encodings"),
        (memory([("en", "x" * 5000), ("fr", "y")]), "a segment of memory.tmx must have at most 4,000 letters, got more"),
        (memory(CAT).replace(b"srclang", b"x='" + b"y" * 300_000 + b"' srclang"), "line 3 must have at most 4,000 bytes"),
        (gzip.compress(memory(CAT))[:-9], "memory.tmx is not a readable gz file"),
    ],
)
def test_hostile_files_are_one_line(file, monkeypatch, made, message):
    monkeypatch.setattr(tmx, "LONGEST_LINE", 4000)
    file.write_bytes(made)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        list(read_tmx(file, ("en", "fr"), "memory.tmx"))
    assert "\n" not in str(error.value)


def test_names():
    assert is_tmx("a/b.tmx")
    assert not is_tmx("tmx")
