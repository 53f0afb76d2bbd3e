"""The state of OverallFrameworkMetrics stays small, however many processes and names there are."""

from tests.unit.rules.test_overall_framework_metrics import busy_object, folded
from trainguard.rules.framework_events import MAX_PROCESSES
from trainguard.rules.overall_framework_metrics.rule import (
    KEPT_NAMES,
)
from trainguard.state.codec import encode_state


def test_state_of_eight_busy_processes_is_small() -> None:
    state = folded(*(busy_object(process, minute, 60) for minute in range(31) for process in range(8)))

    assert len(encode_state(state)) < 8_000


def test_state_of_endless_process_names_stays_bounded() -> None:
    objects = [busy_object(process, 0, 10**9) for process in range(MAX_PROCESSES + 2)]
    state = folded(*objects)

    assert len(state.loops) == MAX_PROCESSES
    assert all(len(table.names) <= KEPT_NAMES for table in state.classes)
    assert len(encode_state(state)) < 24_000
    assert sum(table.total_us for table in state.classes) == sum(int(each.table.self_us.sum()) for each in objects)
