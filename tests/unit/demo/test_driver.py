"""The end of the demonstration."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from demo.live import driver
from demo.live.expect import Check
from demo.live.show import Screen

LINES = ["one: stopped", "two: reported", "three: healthy"]


@contextmanager
def _stage(*_: Any, **__: Any) -> Iterator[None]:
    yield None


@pytest.mark.parametrize("is_seen", [True, False])
def test_demo_ends_with_three_lines_that_say_what_was_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_seen: bool
) -> None:
    output = io.StringIO()
    monkeypatch.setattr(driver, "deployment", _stage)
    monkeypatch.setattr(driver, "cast_jobs", lambda _: ())
    monkeypatch.setattr(driver, "Show", lambda **_: type("Played", (), {"play": lambda _: (CHECKS[is_seen], LINES)})())

    assert driver.run(folder=tmp_path, screen=Screen(Console(file=output, width=240)), keep=False) is is_seen

    lines = output.getvalue().splitlines()
    assert lines[-3:] == LINES
    assert any("not all was seen" in line for line in lines[:-3]) is not is_seen


CHECKS = {seen: [Check("one", "status", True, seen)] for seen in (True, False)}
