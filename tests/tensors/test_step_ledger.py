"""Which steps are complete, against the definition itself."""

import msgspec
from hypothesis import strategies as st

from tests.support.fuzzing import search, short_and_long
from tests.support.run_folder import MemoryFiles
from tests.support.tensor_trials import three_workers_partial
from trainguard.formats.tensors.bounded import MOST_OF_ALL
from trainguard.formats.tensors.debug.ledger import (
    MOST_PAST_STEPS,
    MOST_PAST_WORKERS,
    MOST_PENDING,
    MOST_WORKERS,
    WINDOW,
    CompleteStep,
    RunHistory,
    StepLedger,
)
from trainguard.formats.tensors.debug.run import complete_steps, find_run
from trainguard.formats.tensors.step_view import Mode

Seen = list[tuple[int, int]]

seen = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=60)


def naive(pairs: Seen, workers: int, *, ended: bool) -> list[CompleteStep]:
    """Return the complete steps by their definition."""
    wrote = {step: {f"worker_{rank}" for number, rank in pairs if number == step} for step, _ in pairs}
    last = max((step for step, names in wrote.items() if len(names) >= workers), default=-1)
    return [
        CompleteStep(step, tuple(sorted(names)))
        for step, names in sorted(wrote.items())
        if len(names) >= workers or step <= last or ended
    ]


def ledger_of(workers: int, *, files: int | None = None) -> StepLedger:
    ledger = StepLedger()
    for rank in range(workers if files is None else files):
        ledger.add_collections(f"worker_{rank}", workers)
    return ledger


def taken(ledger: StepLedger) -> list[CompleteStep]:
    found = []
    while step := ledger.take():
        found.append(step)
    return found


@short_and_long
def test_announcements_in_any_order_give_the_definition(examples: int) -> None:
    def check(pairs: Seen, workers: int, ended: bool, late_collections: bool) -> None:
        ledger = StepLedger() if late_collections else ledger_of(workers)
        for step, rank in pairs:
            assert ledger.add_index(step, f"worker_{rank}")
        if late_collections:
            for rank in range(workers):
                ledger.add_collections(f"worker_{rank}", workers)
        if ended:
            ledger.end()
        assert taken(ledger) == naive(pairs, workers, ended=ended)

    search(check, examples, pairs=seen, workers=st.integers(1, 3), ended=st.booleans(), late_collections=st.booleans())


@short_and_long
def test_a_stored_ledger_goes_on_in_the_order_of_a_listing(examples: int) -> None:
    """Steps are taken as soon as they can be; between any two announcements the ledger is stored and read again."""

    def check(pairs: Seen, workers: int) -> None:
        ledger = ledger_of(workers)
        found = []
        for step, rank in sorted(set(pairs)):
            ledger = msgspec.json.decode(msgspec.json.encode(ledger), type=StepLedger)
            ledger.add_index(step, f"worker_{rank}")
            if rank == 2 or (step, rank + 1) not in pairs:
                found += taken(ledger)
        complete = naive(pairs, workers, ended=False)
        assert [each.step for each in found] == [each.step for each in complete]
        ledger.end()
        found += taken(ledger)
        assert [each.step for each in found] == [each.step for each in naive(pairs, workers, ended=True)]

    search(check, examples, pairs=seen, workers=st.integers(1, 3))


def test_three_writers_of_which_one_misses_steps() -> None:
    def steps(files: dict[str, bytes]) -> list[int]:
        held = MemoryFiles(files)
        return [step.step for step in complete_steps(held, find_run(held, "run"), StepLedger())]

    assert steps(three_workers_partial(step_6=False)) == [0, 1, 2]
    assert steps(three_workers_partial()) == [0, 1, 2, 3, 4, 5, 6]
    assert steps(three_workers_partial(step_6=False, ended=True)) == [0, 1, 2, 3, 4, 5, 6]


def test_no_step_before_every_worker_has_its_collections() -> None:
    ledger = ledger_of(2, files=1)
    ledger.add_index(0, "worker_0")
    ledger.add_index(0, "worker_1")
    assert ledger.first() is None
    ledger.add_collections("worker_1", 2)
    assert ledger.first() == CompleteStep(0, ("worker_0", "worker_1"))


def test_a_run_that_ends_without_collections_has_no_data() -> None:
    ledger = StepLedger()
    assert not ledger.is_empty
    ledger.end()
    assert ledger.is_empty


def test_a_step_that_was_taken_is_not_taken_again() -> None:
    ledger = ledger_of(1)
    assert ledger.add_index(5, "worker_0")
    assert taken(ledger) == [CompleteStep(5, ("worker_0",))]
    assert not ledger.add_index(5, "worker_0")
    assert not ledger.add_index(4, "worker_0")
    assert taken(ledger) == []
    assert ledger.listing_starts == 6


def test_a_worker_that_writes_no_more_holds_up_a_thousand_steps() -> None:
    ledger = ledger_of(2)
    for step in range(WINDOW):
        ledger.add_index(step * 500, "worker_0")
    assert taken(ledger) == []
    ledger.add_index(WINDOW * 500, "worker_0")
    found = taken(ledger)
    assert [each.step for each in found] == [step * 500 for step in range(WINDOW // 2)]
    assert ledger.given_up == WINDOW // 2


def test_what_is_stored_is_bounded() -> None:
    ledger = StepLedger()
    ledger.add_collections("worker_0", MOST_WORKERS)
    for step in range(50):
        for rank in range(1, 1_000):
            ledger.add_index(step, f"worker_{rank}")
        taken(ledger)
    assert ledger.entries == sum(map(len, ledger.pending.values()))
    ledger.end()
    for rank in range(MOST_WORKERS + 10):
        ledger.add_index(99, f"stranger_{rank}")
    assert len(ledger.names) == MOST_WORKERS
    assert ledger.refused > 0


def test_many_workers_wait_for_fewer_steps() -> None:
    ledger = ledger_of(1_000)
    for step in range(40):
        for rank in range(999):
            ledger.add_index(step, f"worker_{rank}")
        taken(ledger)
        assert ledger.entries <= MOST_PENDING + 1
    assert ledger.given_up > 0


def history_of(sets: dict[int, int], steps: int) -> RunHistory:
    """Return a history of steps whose set of tensors is named by the largest interval that divides them."""
    history = RunHistory()
    for step in range(steps):
        tensors = max(name for every, name in sets.items() if step % every == 0)
        history.add(step, Mode.TRAIN, step, [f"worker_{rank}" for rank in range(3)], tensors)
    return msgspec.json.decode(msgspec.json.encode(history), type=RunHistory)


class TestHistory:
    def test_the_last_steps_of_each_mode_are_kept(self) -> None:
        history = RunHistory()
        for step in range(200):
            history.add(step, Mode.TRAIN if step % 2 else Mode.EVAL, step // 2, ["worker_0"])
        assert [each.step for each in history.steps] == list(range(200 - 2 * MOST_PAST_STEPS, 200))
        assert [each.step for each in history.before(198, Mode.TRAIN)][:3] == [197, 195, 193]

    def test_rarely_saved_tensors_are_kept_as_long_as_those_per_step(self) -> None:
        history = history_of({1: 1, 100: 2, 1_000: 3}, 10_001)
        kept = {name: [each.step for each in history.steps if each.tensors == name] for name in (1, 2, 3)}
        assert kept[1] == list(range(10_001 - 1 - MOST_PAST_STEPS, 10_000))
        assert len(kept[2]) == MOST_PAST_STEPS
        assert kept[3] == list(range(0, 10_001, 1_000))

    def test_many_sets_of_tensors_leave_room_for_each(self) -> None:
        history = RunHistory()
        for step in range(5_000):
            history.add(step, Mode.TRAIN, step, ["worker_0"], 1 if step % 50 else 2 + step)
        assert len(history.steps) <= MOST_OF_ALL
        assert history.steps[-1].step == 4_999

    def test_workers_are_bounded(self) -> None:
        history = history_of({1: 1}, 10)
        for step in range(200, 220):
            history.add(step, Mode.TRAIN, step, [f"worker_{step}_{rank}" for rank in range(1_000)])
        assert sum(map(len, history.worker_sets)) <= MOST_PAST_WORKERS
        assert history.steps[-1].step == 219
        assert history.workers_of(history.steps[-1])[0] == "worker_219_0"

    def test_what_was_stored_before_sets_of_tensors_is_read(self) -> None:
        stored = b'{"steps":[[7,"TRAIN",7,0],[8,"TRAIN",8,0]],"worker_sets":[["worker_0"]]}'
        history = msgspec.json.decode(stored, type=RunHistory)
        history.add(9, Mode.TRAIN, 9, ["worker_0"], 5)
        assert [(each.step, each.tensors) for each in history.before(10, Mode.TRAIN)] == [(9, 5), (8, 0), (7, 0)]
        assert history.reaches(8)
        assert not history.reaches(6)

    def test_a_step_that_made_room_is_not_one_that_never_came(self) -> None:
        history = history_of({1: 1, 100: 2}, 301)
        assert history.find(100) is not None
        assert not history.reaches(150)
        assert history.reaches(299)
