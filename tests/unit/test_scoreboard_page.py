"""The scoreboard's page: what is judged now replaces its own rows alone."""

from tests.scoreboard.__main__ import FAILS, HEAD, MARK, written
from tests.scoreboard.sets import SETS

FIRST, SECOND, *OTHERS = SETS


def test_a_set_that_is_not_judged_keeps_its_rows_and_failures() -> None:
    before = "\n".join([MARK, *HEAD, f"| {FIRST} | a | 1 |", f"| {SECOND} | a | 2 |", FAILS, f"* {FIRST}, a: x", ""])
    now = written({SECOND: ([f"| {SECOND} | a | 3 |"], [f"* {SECOND}, a: y"])}, before)
    assert [each for each in now.splitlines() if each.startswith((f"| {FIRST}", f"| {SECOND}", f"* {FIRST},"))] == [
        f"| {FIRST} | a | 1 |",
        f"| {SECOND} | a | 3 |",
        f"* {FIRST}, a: x",
    ]
    assert f"* {SECOND}, a: y" in now
    assert f"Not judged yet: {', '.join(OTHERS)}." in now
    assert written({}, now) == now
