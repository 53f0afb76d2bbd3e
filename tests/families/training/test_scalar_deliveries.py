"""However messages about files of scalars come, or not: one state, but for what a source has to say too late.

A look sees the newest version of each file. Rules are shown a step when every source that is known has passed it, and
are not shown it again. So one part depends on when the looks were: a source whose first file comes when others have
gone on is *late* with the steps that rules have seen. In a run that is delivered late it is known from the first look
on, and nothing of it is late. All else is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families.training.runs import FAMILIES, SCALAR, fires_of, rows_of
from tests.families.training.test_scalars import TB, events
from tests.support.delivery import Network
from tests.support.small_job import START, Upload, describe
from trainguard.core.records import JobStatus, RuleRow
from trainguard.engine.streams.session import DELIVERY_COUNTERS, state_of
from trainguard.engine.training.scalar_files import ScalarState

TRAIN, EVAL = (f"{TB}{name}/events.out.tfevents.1.host" for name in ("train", "eval"))
MINUTES, EVERY = 6, 4


@cache
def uploads(*, eval_begins: int) -> tuple[Upload, ...]:
    """Return versions of two files that grow each minute; that of evaluation appears in a minute."""
    found = []
    for minute in range(1, MINUTES + 1):
        steps = range(5 * minute)
        losses = {step: 200.0 if step in {12, 13} else 1.0 for step in steps}
        if minute >= eval_begins:
            body = events(dict.fromkeys(steps[::EVERY], 2.0), tag="eval_loss")
            found.append(Upload(START + 60.0 * minute, EVAL, body))
        found.append(Upload(START + 60.0 * minute, TRAIN, events(losses)))
    return tuple(found)


@dataclass(frozen=True)
class Delivery:
    """Seconds after which each version's message comes, None for never; port calls until functions die."""

    delays: tuple[float | None, ...]
    doomed: tuple[int, ...] = ()


def play(written: Sequence[Upload], delivery: Delivery) -> Network:
    network = Network(families=FAMILIES)
    network.doomed = list(delivery.doomed)
    happenings: list[tuple[float, int, Upload | None]] = [(START + 60.0 * minute, 2, None) for minute in range(1, 40)]
    for upload, delay in zip(written, delivery.delays, strict=False):
        happenings.append((upload.at, 0, upload))
        if delay is not None:
            happenings.append((upload.at + delay, 1, upload))
    for at, kind, what in sorted(happenings, key=lambda each: each[:2]):
        network.run_until(at, batch_s=0.0)
        if at > START + 60.0 * (MINUTES + 2):
            network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
        if what is None:
            network.run_scheduler()
        elif kind == 0:
            network.put(what)
        else:
            network.announce(what, at)
    network.run_until(START + 3_600.0, batch_s=0.0)
    assert not network.job().active
    return network


def training_rows(network: Network) -> dict[str, RuleRow]:
    return {name: row for name, row in rows_of(network).items() if name.startswith("training/")}


def outcome(network: Network) -> object:
    """Return the stored item of the stream whole, its rows and its fires."""
    item = network.node(SCALAR)
    counters = {name: count for name, count in item.counters.items() if name not in DELIVERY_COUNTERS}
    rows = {
        name: (row.status, row.finding.reason, row.finding.measured, row.violations, row.data_points)
        for name, row in training_rows(network).items()
    }
    stored = msgspec.json.encode(state_of(item, ScalarState))
    return (
        stored,
        dict(item.cursors),
        dict(item.pending),
        item.closed,
        counters,
        rows,
        sorted(map(str, fires_of(network))),
    )


DELAYS = st.one_of(st.just(0.5), st.floats(0.1, 60.0), st.floats(60.0, 900.0), st.none())
COUNT = 2 * MINUTES
DELIVERIES = st.builds(Delivery, st.tuples(*[DELAYS] * COUNT), st.lists(st.integers(1, 25), max_size=3).map(tuple))


@cache
def in_order(*, eval_begins: int) -> Network:
    return play(uploads(eval_begins=eval_begins), Delivery((0.5,) * COUNT))


@settings(max_examples=8)
@given(DELIVERIES)
def test_any_delivery_of_files_gives_one_item(delivery: Delivery) -> None:
    assert outcome(play(uploads(eval_begins=1), delivery)) == outcome(in_order(eval_begins=1))


@settings(max_examples=8)
@given(DELIVERIES)
def test_of_a_source_that_begins_late_its_late_steps_differ(
    delivery: Delivery,
) -> None:
    network = play(uploads(eval_begins=3), delivery)
    expected, found = (each.node(SCALAR) for each in (in_order(eval_begins=3), network))
    assert (found.cursors, found.pending, found.closed) == (expected.cursors, expected.pending, expected.closed)
    assert fires_of(network) == fires_of(in_order(eval_begins=3))
    shown = {state_of(item, ScalarState).steps + item.counters.get("late", 0) for item in (expected, found)}
    assert len(shown) == 1, "a step was shown, or counted as late, and never both"
    trained = [
        [row for row in state_of(item, ScalarState).history.rows if row.mode.value == "TRAIN"]
        for item in (expected, found)
    ]
    assert trained[0] == trained[1]
    assert {name: row.status for name, row in training_rows(network).items()} == {
        name: row.status for name, row in training_rows(in_order(eval_begins=3)).items()
    }


def test_steps_that_rules_have_passed_are_counted_as_late() -> None:
    assert in_order(eval_begins=3).node(SCALAR).counters == {"late": 2}
