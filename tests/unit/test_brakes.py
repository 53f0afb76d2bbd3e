"""What functions know of the operators' brakes, also while SSM does not answer."""

from dataclasses import dataclass, field

import pytest

from tests.support.memory import MemoryJournal
from trainguard.aws.brakes import KNOWN_S, KnownBrakes
from trainguard.core.brakes import KEPT_S, Braked, BrakeList, joined, new_brake, read_brakes, released, written_brakes
from trainguard.core.errors import PortUnavailableError

NOW = 1_795_248_000.0
BRAKE = new_brake("b-1", Braked.ALERTS, by="ada", why="a storm", now=NOW)


@dataclass
class Store:
    """A store that answers, or does not."""

    answers: list[BrakeList | None]
    asked: int = 0
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    now: float = 0.0

    def read(self) -> BrakeList:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if answer is None:
            raise PortUnavailableError("ssm", "GetParameter", "ThrottlingException: Rate exceeded")
        return answer

    def known(self) -> KnownBrakes:
        return KnownBrakes(self, self.journal, lambda: self.now)  # type: ignore[arg-type]  # it only reads


def test_brakes_are_asked_for_again_within_half_a_minute() -> None:
    store = Store([BrakeList(), BrakeList((BRAKE,))])
    known = store.known()
    assert known().in_force(NOW) == []
    store.now = KNOWN_S - 1.0
    assert known().in_force(NOW) == []
    assert store.asked == 1
    store.now = KNOWN_S
    assert known().in_force(NOW) == [BRAKE]


@pytest.mark.parametrize("before", [None, BrakeList((BRAKE,))])
def test_unreadable_store_keeps_what_was_known_and_is_counted(before: BrakeList | None) -> None:
    store = Store([before, None])
    known = store.known()
    for store.now in (0.0, KNOWN_S, KNOWN_S + 1.0):
        assert known().in_force(NOW) == ([] if before is None else [BRAKE])
    assert [each.what for each in store.journal.entries] == ["brakes_unread"] * (2 if before is None else 1)


def test_unreadable_entry_is_counted_and_the_others_hold() -> None:
    document = written_brakes([BRAKE], now=NOW)[:-1] + ', {"id": "b-2"}]'
    store = Store([read_brakes(document)])
    assert store.known()().in_force(NOW) == [BRAKE]
    assert "brake 2 of 2 cannot be read" in str(store.journal.entries[0].where["reason"])


def test_of_two_of_one_id_the_earlier_end_counts() -> None:
    (over,) = released([BRAKE], {"b-1"}, by="bob", now=NOW + 60.0)
    assert joined([BRAKE, over]) == joined([over, BRAKE]) == (over,)
    assert (over.released_by, over.in_force(NOW + 59.0), over.in_force(NOW + 60.0)) == ("bob", True, False)
    assert released([over], {"b-1"}, by="eve", now=NOW + 70.0) == (over,)


@pytest.mark.parametrize("part", [0.0, 0.0004, 0.0005, 0.0006, 0.9996])
def test_released_brake_is_over_at_once(part: float) -> None:
    (over,) = released([BRAKE], {"b-1"}, by="bob", now=NOW + 60.0 + part)
    assert not over.in_force(NOW + 60.0 + part)


def test_brake_that_ended_is_forgotten_after_a_day() -> None:
    over = released([BRAKE], {"b-1"}, by="bob", now=NOW)
    assert read_brakes(written_brakes(over, now=NOW + KEPT_S - 1.0)).brakes == over
    assert written_brakes(over, now=NOW + KEPT_S) == "[]"
