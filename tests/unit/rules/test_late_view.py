"""A view that holds little of a node: it is whole where somebody asks."""

import numpy as np
import pytest

from tests.unit.rules.node_replay import node_minutes, series
from trainguard.rules.rule_inputs import LateView

WHOLE = list(node_minutes(series(np.tile([95.0, 20.0, 0.0], 100), interval_s=1.0), closed=False))[-1].view


def test_late_view_has_the_parts_of_the_node_read_only() -> None:
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
def test_late_view_of_an_ended_stream_differs_only_in_that(closed: bool, asked: bool) -> None:
    late = LateView(WHOLE, closed=closed, again=lambda: WHOLE)
    view = late.as_of(closed=asked)
    assert view.closed is asked
    assert (view is late) is (closed is asked)
    np.testing.assert_array_equal(view.gpu_histogram, WHOLE.gpu_histogram)
    np.testing.assert_array_equal(view.kept_times, WHOLE.kept_times)
