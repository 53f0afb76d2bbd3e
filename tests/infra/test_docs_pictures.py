"""The pictures are drawn from their code, show what there is, and can be read in light and dark."""

import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.pictures.draw import FOLDER, PICTURES
from infra.constructs import fire_machine, kernels_machine, report_machine
from infra.constructs.states import State

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
ACCEPT = "TRAINGUARD_ACCEPT_SNAPSHOT"
_SVG = "{http://www.w3.org/2000/svg}"
# Pixels that a character takes at most on average, small or not.
CHARACTER = {True: 5.9, False: 7.4}


def tasks(machine: State) -> set[str]:
    """Return the names of a machine's tasks, those of its branches and maps included."""
    found = set()
    for name, state in machine["States"].items():
        if state["Type"] == "Task":
            found.add(name)
        for below in (*state.get("Branches", ()), *filter(None, [state.get("ItemProcessor")])):
            found |= tasks(below)
    return found


@pytest.mark.parametrize("name", PICTURES)
def test_redrawn_picture_matches_its_file(name: str) -> None:
    file, drawn = FOLDER / f"{name}.svg", PICTURES[name]().svg()
    if os.environ.get(ACCEPT):
        file.write_text(drawn, "utf-8")
    assert file.read_text("utf-8") == drawn, f"draw it again: {ACCEPT}=1, or python -m docs.pictures.draw"


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_on_the_page_with_alternative_text(name: str) -> None:
    assert re.search(rf"!\[\w[^\]]{{30,}}\]\(pictures/{name}\.svg\)", PAGE)
    root = ElementTree.fromstring(PICTURES[name]().svg())  # noqa: S314 -- our own text
    assert root.findtext(f"{_SVG}title")
    assert len(root.findtext(f"{_SVG}desc") or "") > 60


@pytest.mark.parametrize("name", PICTURES)
def test_picture_contents_fit_inside_their_boxes(name: str) -> None:
    canvas = PICTURES[name]()
    root = ElementTree.fromstring(canvas.svg())  # noqa: S314 -- our own text
    boxes = [each for each in root.iter(f"{_SVG}rect") if (each.get("class") or "").startswith("box")]
    for box in boxes:
        x, y, width, height = (float(str(box.get(side))) for side in ("x", "y", "width", "height"))
        assert min(x, y, canvas.width - x - width, canvas.height - y - height) >= 8
        for text in root.iter(f"{_SVG}text"):
            middle, line = float(str(text.get("x"))), float(str(text.get("y")))
            if text.get("text-anchor") == "middle" and middle == x + width / 2 and y < line < y + height:
                assert len(text.text or "") * CHARACTER[text.get("class") == "small"] <= width, text.text


@pytest.mark.parametrize("name", PICTURES)
def test_picture_colours_have_a_dark_variant(name: str) -> None:
    style = ElementTree.fromstring(PICTURES[name]().svg()).findtext(f"{_SVG}style") or ""  # noqa: S314 -- our own text
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    coloured = re.compile(r"^\s*([\w.]+) \{[^}]*#[0-9a-f]{6}", re.MULTILINE)
    assert set(coloured.findall(light)) == set(coloured.findall(dark))


def test_every_task_of_the_state_machines_is_drawn() -> None:
    assert tasks(fire_machine.definition()) <= words("fire-machine")
    assert tasks(report_machine.definition()) <= words("report-machine")
    assert tasks(kernels_machine.definition()) <= words("kernels-machine")


def test_every_function_is_drawn() -> None:
    drawn = {word.replace("_", "").lower() for name in PICTURES for word in words(name)}
    functions = {folder.name for folder in (ROOT / "lambdas").iterdir() if (folder / "handler.py").is_file()}
    assert {name.replace("_", "") for name in functions} <= drawn


def test_every_folder_of_the_code_says_what_it_is() -> None:
    package = ROOT / "rules_layer" / "trainguard"
    folders = list(package.glob("*/__init__.py"))
    assert len(folders) > 10
    assert [path.parent.name for path in folders if not path.read_text("utf-8").startswith('"""')] == []
    assert {"lambdas", "infra", "demo", "emulator", "events"} <= set(re.findall(r"(\w+)/", PAGE))


def words(name: str) -> set[str]:
    """Return the words of a picture's texts."""
    return {word.strip(",;:") for text in PICTURES[name]().texts for word in text.split()}
