"""What `trainguard doctor --job` says about a job's sources, by status objects that polls wrote."""

import msgspec
import pytest

from trainguard.cli.doctor.job import BEHIND_S, grade_source
from trainguard.cli.doctor.site import CheckLevel
from trainguard.stack.polling.delivery import PollStatus

AT = 1_800_000_000.0
READ = PollStatus(source="logs", through=AT - 120.0, polled_at=AT, minutes=12, scalars=1)


def graded(status: PollStatus | None, *, final: bool = False) -> list[tuple[CheckLevel, str]]:
    return [(each.level, each.found) for each in grade_source("source", status, now=AT, final=final)]


def test_written_objects_of_a_read_source_are_counted() -> None:
    assert graded(READ) == [(CheckLevel.OK, "logs: 12 minutes of metrics, 1 row of scalars")]


def test_refusing_source_shows_its_reason() -> None:
    ((level, found),) = graded(msgspec.structs.replace(READ, fault="status 403", failed_since=AT - 1_800.0))
    assert (level, found) == (CheckLevel.FAIL, "logs is not read for 30 min: status 403")


@pytest.mark.parametrize(
    ("behind_s", "final", "ended", "level"),
    [
        (BEHIND_S, False, False, CheckLevel.OK),
        (BEHIND_S + 1.0, False, False, CheckLevel.WARN),
        (BEHIND_S + 1.0, True, False, CheckLevel.OK),
        (BEHIND_S + 1.0, False, True, CheckLevel.OK),
    ],
)
def test_lagging_source_warns_for_a_running_job(behind_s: float, final: bool, ended: bool, level: CheckLevel) -> None:
    status = msgspec.structs.replace(READ, through=AT - behind_s, ended=ended)
    assert graded(status, final=final)[0][0] == level


def test_unreadable_parts_are_counted() -> None:
    (_, (level, found)) = graded(msgspec.structs.replace(READ, bad={"a value\nof none": 3}))
    assert level == CheckLevel.WARN
    assert "a value" in found
    assert "(3)" in found
    assert "\n" not in found


def test_given_no_status_object_when_looked_at_then_it_is_named() -> None:
    assert graded(None) == [(CheckLevel.WARN, "live-source/source.json is no status object")]
