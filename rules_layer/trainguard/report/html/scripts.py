"""The page's scripts: files joined in one strict function, those that every page has first."""

from collections.abc import Iterable
from pathlib import Path

_ASSETS = Path(__file__).parent.parent / "assets"
_OF_EVERY_PAGE = ("page/zone.js",)


def joined_script(files: Iterable[str] = ()) -> str:
    """Give the files that every page has and then ``files``, so that no name of theirs is global."""
    code = "\n".join(read_asset(each) for each in (*_OF_EVERY_PAGE, *files))
    return f'(() => {{\n"use strict";\n{code}\n}})();\n'


def read_asset(file: str) -> str:
    """Read a file below ``assets/``."""
    return (_ASSETS / file).read_text(encoding="utf-8")
