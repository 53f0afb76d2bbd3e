"""The pictures are drawn from their code, show what there is, and can be read in light and dark."""

import json
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
CHARACTER = {True: 5.9, False: 7.4}
"""Pixels that a character takes at most on average, small or not."""


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
def test_given_a_picture_when_drawn_again_then_it_is_the_file_beside_the_code(name: str) -> None:
    file, drawn = FOLDER / f"{name}.svg", PICTURES[name]().svg()
    if os.environ.get(ACCEPT):
        file.write_text(drawn, "utf-8")
    assert file.read_text("utf-8") == drawn, f"draw it anew: {ACCEPT}=1, or python -m docs.pictures.draw"


@pytest.mark.parametrize("name", PICTURES)
def test_given_a_picture_when_read_then_it_is_on_the_page_with_words_for_who_cannot_see_it(name: str) -> None:
    assert re.search(rf"!\[\w[^\]]{{30,}}\]\(pictures/{name}\.svg\)", PAGE)
    root = ElementTree.fromstring(PICTURES[name]().svg())  # noqa: S314 -- our own text
    assert root.findtext(f"{_SVG}title")
    assert len(root.findtext(f"{_SVG}desc") or "") > 60


@pytest.mark.parametrize("name", PICTURES)
def test_given_a_picture_when_measured_then_everything_is_inside_and_every_text_fits_its_box(name: str) -> None:
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
def test_given_a_picture_when_its_style_is_read_then_every_colour_has_one_for_the_dark(name: str) -> None:
    style = ElementTree.fromstring(PICTURES[name]().svg()).findtext(f"{_SVG}style") or ""  # noqa: S314 -- our own text
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    coloured = re.compile(r"^\s*([\w.]+) \{[^}]*#[0-9a-f]{6}", re.MULTILINE)
    assert set(coloured.findall(light)) == set(coloured.findall(dark))


def test_given_the_machines_when_compared_with_their_pictures_then_every_task_is_drawn() -> None:
    assert tasks(fire_machine.definition()) <= words("fire-machine")
    assert tasks(report_machine.definition()) <= words("report-machine")
    assert tasks(kernels_machine.definition()) <= words("kernels-machine")


def test_given_the_functions_when_compared_with_the_pictures_then_each_is_drawn() -> None:
    drawn = {word.replace("_", "").lower() for name in PICTURES for word in words(name)}
    functions = {folder.name for folder in (ROOT / "lambdas").iterdir() if (folder / "handler.py").is_file()}
    assert {name.replace("_", "") for name in functions} <= drawn


def test_given_the_rooms_when_compared_with_the_folders_then_each_stands_in_the_table() -> None:
    rooms = {room for row in re.findall(r"^\| (`[^|]+) \|", PAGE, re.MULTILINE) for room in re.findall(r"`(\w+)/", row)}
    package = ROOT / "rules_layer" / "trainguard"
    folders = {each.name for each in package.iterdir() if each.is_dir() and (each / "__init__.py").is_file()}
    assert folders | {"lambdas", "infra", "demo", "emulator", "events"} <= rooms


def test_given_the_machines_columns_when_compared_with_the_page_then_each_is_named_as_its_own() -> None:
    (row,) = re.findall(r"^\| `RuleState` \| `LowGPUUtilization` \|.*$", PAGE, re.MULTILINE)
    set_by_machine = set(re.findall(r"#(\w+) = :", json.dumps(fire_machine.definition())))
    shared = {"Status", "DebuggerStatus", "Reason", "FiredAt"}
    assert set_by_machine - shared == set(re.findall(r"\b(?:[A-Z]\w+)(?=,| and| \|)", row.split("its columns")[1]))


def words(name: str) -> set[str]:
    """Return the words of a picture's texts."""
    return {word.strip(",;:") for text in PICTURES[name]().texts for word in text.split()}
