"""What a thing shows in a terminal and in a notebook, for tests; and a label that must be escaped."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET

import rich.console

EVIL = "<script>alert(1)</script>"


def printed(thing: object) -> str:
    out = io.StringIO()
    rich.console.Console(file=out, width=100).print(thing)
    return out.getvalue()


def parsed(html: str) -> ET.Element:
    """HTML that is XML as well, so that every tag is closed and every text escaped."""
    return ET.fromstring(html.replace("&nbsp;", " "))
