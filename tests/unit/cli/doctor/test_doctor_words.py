"""How `trainguard doctor` says times and amounts."""

import pytest

from trainguard.cli.doctor.site import span
from trainguard.core.units import counted


@pytest.mark.parametrize(
    ("seconds", "said"), [(-3.0, "0 s"), (119.0, "119 s"), (120.0, "2 min"), (7200.0, "2 h"), (172_800.0, "2 d")]
)
def test_duration_is_shown_in_a_human_unit(seconds: float, said: str) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize(("amount", "said"), [(0, "0 alarms"), (1, "1 alarm"), (1200, "1,200 alarms")])
def test_given_an_amount_when_said_then_its_noun_agrees(amount: int, said: str) -> None:
    assert counted(amount, "alarm") == said
