"""Values of settings: what a tag can say, and what is refused."""

import pytest

from trainguard.core.job_policy import DAYS, QuietHours
from trainguard.engine.settings.parsers import read_duration_s, read_flag, read_quiet_hours, read_rules

WEEK = ("mon", "tue", "wed", "thu", "fri")


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("LowGPUUtilization", ("LowGPUUtilization",)),
        ("lowgpuutilization STEPOUTLIER", ("LowGPUUtilization", "StepOutlier")),
        (" StepOutlier,  BatchSize , StepOutlier", ("StepOutlier", "BatchSize")),
        ("All", ("all",)),
        ("none", ()),
    ],
)
def test_rule_names_are_listed_once_in_their_spelling(text: str, rules: object) -> None:
    assert read_rules(text) == rules


@pytest.mark.parametrize("text", ["", " ", ",", "LowGPU", "all StepOutlier", "none all", "StepOutlier\x00"])
def test_given_what_names_no_rules_when_read_then_it_is_refused(text: str) -> None:
    assert read_rules(text) is None


@pytest.mark.parametrize("text", ["true", " On", "YES"])
def test_given_a_yes_when_read_then_it_is_true(text: str) -> None:
    assert read_flag(text) is True


@pytest.mark.parametrize("text", ["false", "OFF", "no "])
def test_given_a_no_when_read_then_it_is_false(text: str) -> None:
    assert read_flag(text) is False


@pytest.mark.parametrize("text", ["", "maybe", "truefalse", "1", "tru e"])
def test_given_neither_yes_nor_no_when_read_then_it_is_refused(text: str) -> None:
    assert read_flag(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("90", 90.0),
        ("90s", 90.0),
        ("10m", 600.0),
        ("1.5 H", 5_400.0),
        ("24h", 86_400.0),
        ("86400", 86_400.0),
        ("1d", 86_400.0),
    ],
)
def test_given_a_time_when_read_then_it_is_in_seconds(text: str, seconds: float) -> None:
    assert read_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "-1", "1.1d", "24.001h", "86401", "1e3", "nan", "inf", "1,5h", "٣m", "9" * 40, "5 m m"]
)
def test_duration_beyond_a_day_or_invalid_is_refused(text: str) -> None:
    assert read_duration_s(text) is None


@pytest.mark.parametrize(
    ("text", "days", "start", "end", "zone"),
    [
        ("22:00-07:00", DAYS, "22:00", "07:00", "UTC"),
        ("mon-fri 22:00-07:00 Europe/Berlin", WEEK, "22:00", "07:00", "Europe/Berlin"),
        ("Sat,SUN 00:00-24:00", ("sat", "sun"), "00:00", "00:00", "UTC"),
        ("fri-mon 08:00-09:00", ("mon", "fri", "sat", "sun"), "08:00", "09:00", "UTC"),
        ("wed-wed 08:00-09:00", ("wed",), "08:00", "09:00", "UTC"),
        ("mon tue-wed tue 01:02-03:04 Etc/GMT+5", ("mon", "tue", "wed"), "01:02", "03:04", "Etc/GMT+5"),
        ("08:00-09:00 America/Argentina/Buenos_Aires", DAYS, "08:00", "09:00", "America/Argentina/Buenos_Aires"),
    ],
)
def test_quiet_hours_have_the_given_days_span_and_zone(
    text: str, days: tuple[str, ...], start: str, end: str, zone: str
) -> None:
    assert read_quiet_hours(text) == (QuietHours(days=days, start=start, end=end, timezone=zone),)


def test_several_quiet_hours_are_separated_by_a_plus() -> None:
    read = read_quiet_hours("mon-fri 22:00-07:00 Europe/Berlin + sat sun 00:00-24:00")
    assert read is not None
    assert [entry.days for entry in read] == [WEEK, ("sat", "sun")]


def test_given_no_quiet_hours_when_said_so_then_there_are_none() -> None:
    assert read_quiet_hours("none") == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mon",
        "22:00",
        "22-07",
        "24:00-07:00",
        "22:00-24:01",
        "22:00-7:00",
        "22:60-23:00",
        "monday 22:00-23:00",
        "mon-xyz 22:00-23:00",
        "mon- 22:00-23:00",
        "22:00-23:00 Europe/Nowhere",
        "22:00-23:00 ../../etc/passwd",
        "22:00-23:00 /etc/localtime",
        "22:00-23:00 Europe",
        "22:00-23:00 UTC mon",
        "22:00-23:00 + ",
        "22:00-23:00 + maybe",
        "22:00-23:00+23:00-23:30",
        "22:00-23:00 \x00",
    ],
)
def test_invalid_quiet_hours_are_refused(text: str) -> None:
    assert read_quiet_hours(text) is None
