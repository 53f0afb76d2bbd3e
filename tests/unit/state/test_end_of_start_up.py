"""Work that goes on when a stream ends, however short, and what waits of it."""

import numpy as np
import pytest

from tests.support.node_snapshots import node_snapshots
from trainguard.state.sample_window import SampleWindow, SampleWindowState

START = 1_000.0


def window_of(state: SampleWindowState, percents: list[float], *, capacity: int = 25, first: int = 0) -> SampleWindow:
    """Fold samples of one GPU, ten seconds apart."""
    window = SampleWindow(state, 1)
    times = START + 10.0 * np.arange(first, first + len(percents), dtype=np.float64)
    window.extend(node_snapshots(times, np.array(percents)[:, None]), capacity=capacity, interval_s=10.0)
    return window


@pytest.mark.parametrize(("capacity", "held"), [(25, 3), (2, 2)])
def test_work_of_three_samples_is_kept_at_the_stream_end(capacity: int, held: int) -> None:
    window = window_of(state := SampleWindowState(), [0.0, 50.0, 60.0, 70.0], capacity=capacity)
    assert (state.first_active_at, state.kept_total, window.working_since) == (None, 0, START + 10.0)
    window.settle()
    window.store()
    assert (state.first_active_at, state.kept_total, window.working_since) == (START + 10.0, 3, None)
    assert window.gpu_utilization[:, 0].tolist() == [50.0, 60.0, 70.0][-held:]
    assert window.histogram.sum() == 3
    window.settle()
    assert state.kept_total == 3


def test_given_no_work_when_the_stream_ends_then_nothing_is_kept() -> None:
    window = window_of(state := SampleWindowState(), [0.0, 0.0])
    window.settle()
    assert (state.first_active_at, state.kept_total) == (None, 0)


def test_newest_waiting_work_is_kept_in_a_small_item() -> None:
    state = SampleWindowState()
    for first in range(0, 300, 3):
        window = window_of(state, [50.25, 0.0, 0.0], first=first) if first else window_of(state, [50.25, 0.0, 0.0])
        window.store()
        if state.first_active_at is not None:
            break
    assert (state.first_active_at, state.kept_total) == (START, 16)


def test_waiting_light_work_is_degraded_to_whole_percents() -> None:
    window = window_of(state := SampleWindowState(), [50.25, 40.75, 0.0, 0.0, 30.5])
    assert window.degrade() == "degraded_to_whole_percents"
    assert window.degrade() is None
    window.store()
    window = window_of(state, [60.0, 60.0, 60.0], first=5)
    assert window.gpu_utilization[:, 0].tolist() == [50.0, 41.0, 0.0, 0.0, 30.0, 60.0, 60.0, 60.0]
