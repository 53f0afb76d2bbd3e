"""A view that holds little of a node: it is whole where somebody asks."""

import numpy as np
import pytest

from tests.unit.rules.node_replay import node_minutes, series
from trainguard.rules.late_view import LateView

WHOLE = list(node_minutes(series(np.tile([95.0, 20.0, 0.0], 100), interval_s=1.0), closed=False))[-1].view


def test_given_a_late_view_when_its_parts_are_read_then_they_are_those_of_the_node_and_cannot_be_written_to() -> None:
    late = LateView(WHOLE, closed=True, again=lambda: WHOLE)
    assert (late.node, late.kept_total, late.closed) == (WHOLE.node, WHOLE.kept_total, True)
    for name in ("kept_times", "kept_gpu_utilization", "kept_gpu_memory", "kept_cpu_mean", "gpu_histogram"):
        np.testing.assert_array_equal(getattr(late, name), getattr(WHOLE, name))
        with pytest.raises(ValueError, match="read-only"):
            getattr(late, name)[...] = 0
    with pytest.raises(ValueError, match="read-only"):
        late.ever_active[0] = False


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_given_a_late_view_when_it_is_asked_for_an_ended_stream_then_only_that_differs(
    closed: bool, asked: bool
) -> None:
    late = LateView(WHOLE, closed=closed, again=lambda: WHOLE)
    view = late.as_of(closed=asked)
    assert view.closed is asked
    assert (view is late) is (closed is asked)
    np.testing.assert_array_equal(view.gpu_histogram, WHOLE.gpu_histogram)
    np.testing.assert_array_equal(view.kept_times, WHOLE.kept_times)
