"""The verdicts of a whole job on terminals of any width."""

import re
from pathlib import Path

import pytest

from tests.unit.cli.test_wrong_words import run
from tests.unit.local.places import write

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("columns", [20, 40, 71, 72, 200])
def test_no_reason_is_cut_at_any_terminal_width(tmp_path: Path, columns: int) -> None:
    environment = {"TTY_COMPATIBLE": "1", "TERM": "xterm", "COLUMNS": str(columns)}
    result = run("analyze", write(tmp_path / "jobs"), "--out", tmp_path / "out", env=environment)
    assert result.exit_code == 0, result.stderr
    shown = _STYLES.sub("", result.stdout)
    table = shown.partition("This job ")[0]
    assert max(len(line.rstrip()) for line in table.splitlines()) <= columns
    told = re.sub(r"\s+", "", table)
    for rule in ("LowGPUUtilization", "MaxInitializationTime", "NOT_APPLICABLE"):
        assert rule in told or columns == 20
    assert "…" not in table
