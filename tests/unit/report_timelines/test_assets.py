"""The code that every page carries: the library as it was released, and nothing that ends its element."""

import json
from pathlib import Path

import pytest

import trainguard.report.html.timelines as section

ROOT = Path(__file__).parents[3]
ASSETS = Path(section.__file__).parent.parent / "assets"
SCRIPTS = [path for folder in ("page", "timelines") for path in (ASSETS / folder).glob("*.js")]
RELEASED = ROOT / "node_modules" / "uplot"


@pytest.mark.parametrize("name", ["uPlot.iife.min.js", "uPlot.min.css"])
def test_inlined_library_is_the_file_of_the_locked_package(name: str) -> None:
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]["node_modules/uplot"]["version"]
    assert json.loads((RELEASED / "package.json").read_text())["version"] == locked
    assert (ASSETS / "uplot" / name).read_bytes() == (RELEASED / "dist" / name).read_bytes()


def test_inlined_script_neither_ends_its_element_nor_loads() -> None:
    script = section.timelines_script()
    own = "".join(path.read_text() for path in SCRIPTS)
    for text in ("</script", "<!--"):
        assert text not in script.lower()
    for text in ("innerHTML", "eval(", "fetch(", "XMLHttpRequest", "http:", "https:", "import(", "document.write"):
        assert text not in own


def test_no_script_of_the_folder_is_missing() -> None:
    script = section.timelines_script()
    assert all(path.read_text() in script for path in SCRIPTS)
    assert len(SCRIPTS) > 15


def test_given_the_style_when_inlined_then_it_loads_nothing() -> None:
    style = section.timelines_style()
    assert "url(" not in style
    assert "@import" not in style
    assert "</style" not in style
