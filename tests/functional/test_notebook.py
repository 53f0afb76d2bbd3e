"""The example notebook runs, and prints what it holds; accepted outputs are written with the snapshot's switch."""

import io
import json
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.answers.recorded import ACCEPT

NOTEBOOK = Path(__file__).parents[2] / "examples" / "judge_recorded_runs.ipynb"


def stream(text: str) -> list[dict[str, Any]]:
    """Return a cell's outputs as Jupyter writes them."""
    return [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}] if text else []


def test_cells_print_their_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    monkeypatch.chdir(NOTEBOOK.parent)
    names: dict[str, Any] = {}
    printed = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            with redirect_stdout(io.StringIO()) as out:
                exec(compile("".join(cell["source"]), cell["id"], "exec"), names)  # noqa: S102 -- our own cells
            printed.append(stream(out.getvalue()))
            if os.environ.get(ACCEPT):
                cell["outputs"] = printed[-1]
    if os.environ.get(ACCEPT):
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
    assert printed == [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
