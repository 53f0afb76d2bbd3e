"""A silent canary is counted once a day, and never in a deployment that had no time for one."""

import pytest

from tests.support.memory import MemoryWorld
from trainguard.core.canary_name import canary_name
from trainguard.stack.canary import watch_canary

BUCKET, AT, HOUR_S = "profiles", 1_785_564_000.0, 3_600.0


def told(world: MemoryWorld, hours: range, deployed_at: float) -> list[int]:
    """Return after how many hours it was counted, with a look each minute of these hours."""
    found = []
    for minute in range(60 * hours.start, 60 * hours.stop):
        before = world.journal.totals.get("canary_silent", 0)
        watch_canary(
            world.objects, BUCKET, world.journal, deployed_at=lambda: deployed_at, now=AT + 60.0 * minute + 7.0
        )
        if world.journal.totals.get("canary_silent", 0) > before:
            found.append(minute // 60)
    return found


@pytest.mark.parametrize(
    ("planted_h", "deployed_h", "expected"),
    [
        (0.0, -900.0, [30, 54, 78]),
        (48.0, -900.0, [30, 78]),
        (None, 0.0, [30, 54, 78]),
        (None, 60.0, []),
        (9_000.0, -900.0, [30, 54, 78]),
    ],
)
def test_silence_is_told_after_30_hours_and_once_a_day(
    planted_h: float | None, deployed_h: float, expected: list[int]
) -> None:
    world, times = MemoryWorld(), [] if planted_h is None else [0.0, planted_h]
    found = []
    for hours in (range(24, 48), range(48, 90)):
        for at in times:
            if at * HOUR_S <= hours.start * HOUR_S or at > 1_000:
                world.objects.put(BUCKET, f"{canary_name(AT + at * HOUR_S, 'run')}/x.json", b"", "x")
        found += told(world, hours, AT + deployed_h * HOUR_S)
    assert found == expected
