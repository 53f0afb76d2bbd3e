"""Photographs of the pages: the script takes each, each is small, and is shown with words for who cannot see it."""

import re
from pathlib import Path

import pytest
from PIL import Image

from docs.pictures.screens import FOLDER, SCREENS
from tests.infra.synthesis import ROOT
from tests.infra.test_docs_links import documents

VISIBLE = ("README.md", *(f"docs/{name}.md" for name in ("first-report", "first-alert", "report", "fleet")))
VISIBLE += tuple(f"docs/{name}.md" for name in ("alerts", "ledger", "kernels", "verdict"))
MOST_BYTES = 100_000
_PICTURE = re.compile(r"!\[([^\]]*)\]\((?:docs/)?pictures/screens/(\w+)\.png\)")


def shown(page: Path) -> list[tuple[str, str]]:
    """Return the words and the name of each photograph on a page."""
    return _PICTURE.findall((ROOT / page).read_text("utf-8"))


def test_the_folder_has_the_pictures_of_the_script() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(SCREENS)


@pytest.mark.parametrize("name", SCREENS)
def test_a_picture_has_the_size_of_its_window(name: str) -> None:
    file = FOLDER / f"{name}.png"
    assert file.stat().st_size < MOST_BYTES
    with Image.open(file) as picture:
        assert picture.size == (SCREENS[name].width, SCREENS[name].height)


def test_each_picture_is_shown_with_words() -> None:
    pictures = [each for page in documents() for each in shown(page)]
    assert {name for _, name in pictures} == set(SCREENS)
    assert [name for words, name in pictures if len(words) < 30] == []


@pytest.mark.parametrize("page", VISIBLE)
def test_a_page_on_something_visible_has_a_picture(page: str) -> None:
    assert shown(Path(page))
