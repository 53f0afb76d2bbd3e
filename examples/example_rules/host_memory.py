"""HostMemory: a node whose main memory is nearly full, before the system kills its processes."""

from typing import ClassVar

import msgspec
import numpy as np

from trainguard.core.finding import Patience
from trainguard.core.records import Status
from trainguard.rules.protocol import Percent, PositiveInt, RuleParameters, SystemRule
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult


class HostMemoryParameters(RuleParameters, frozen=True, kw_only=True):
    """``threshold`` is in percent of the node's memory, ``patience`` in snapshots that are over it without a break."""

    threshold: Percent = 90.0
    patience: PositiveInt = 60


class HostMemoryState(msgspec.Struct, array_like=True):
    """What is kept of a node between two minutes.

    ``points`` counts the snapshots seen, ``run`` the newest ones that are over the threshold. ``highest`` is the
    highest sample of all, ``longest`` the longest run that the newest minute was a part of.
    """

    points: int = 0
    run: int = 0
    highest: float = 0.0
    longest: int = 0


class HostMemory(SystemRule[HostMemoryParameters, HostMemoryState]):
    """Fires when a node's memory stays over the threshold."""

    name: ClassVar[str] = "HostMemory"
    parameters_type = HostMemoryParameters
    state_type = HostMemoryState

    def clear_after_s(self, parameters: HostMemoryParameters, interval_s: float) -> float:
        """Three times the patience."""
        return 3.0 * parameters.patience * interval_s

    def window_points(self, parameters: HostMemoryParameters, interval_s: float) -> int:
        """Ask for no kept points: the run is counted as it goes."""
        del parameters, interval_s
        return 0

    def observe(self, state: HostMemoryState, minute: NodeMinute, parameters: HostMemoryParameters) -> None:
        """Count snapshots over the threshold in a row, across minutes; those without a sample say nothing."""
        used = minute.snapshots.host_memory
        used = used[~np.isnan(used)]
        if used.size == 0:
            return
        state.points += int(used.size)
        state.highest = max(state.highest, float(used.max()))
        ends = np.flatnonzero(np.concatenate(([True], used <= parameters.threshold, [True])))
        runs = np.diff(ends) - 1
        runs[0] += state.run
        state.run, state.longest = int(runs[-1]), int(runs.max())

    def judge(self, state: HostMemoryState, view: NodeView, parameters: HostMemoryParameters) -> RuleResult:
        """Compare the longest run with the patience."""
        if state.points == 0:
            return RuleResult(Status.WAITING_FOR_DATA, f"no memory samples of {view.node} yet.")
        minutes = state.longest * view.interval_s / 60.0
        reason = (
            f"{view.node} has been over {parameters.threshold:g} % of its memory for {minutes:.1f} min "
            f"(highest so far {state.highest:.1f} %)."
        )
        fired = state.longest >= parameters.patience
        return RuleResult(
            Status.FIRED if fired else Status.OK,
            reason,
            measured=state.highest,
            threshold=parameters.threshold,
            data_points=state.points,
            progress=Patience(seen=state.longest, needed=parameters.patience),
            advice="Load less ahead, or take an instance with more memory." if fired else None,
        )
