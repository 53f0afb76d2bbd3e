"""The family's one rule: a worker's pulse is too fast."""

import msgspec

from trainguard.core.records import Status
from trainguard.rules.protocol import NonNegativeInt, Positive, Rule, RuleParameters
from trainguard.rules.rule_result import RuleResult


class Beat(msgspec.Struct):
    """One object: the time in epoch seconds, and the pulse."""

    at: float
    rate: float


class FastPulseParameters(RuleParameters, frozen=True, kw_only=True):
    """``patience`` counts steps."""

    threshold: Positive = 100.0
    patience: NonNegativeInt = 2


class FastPulseState(msgspec.Struct):
    """Steps seen, and the newest rate."""

    steps: int = 0
    rate: float = 0.0


class FastPulse(Rule[FastPulseParameters]):
    """Fires while a worker's newest pulse is over the threshold."""

    name = "pulse/FastPulse"
    parameters_type = FastPulseParameters
    state_type = FastPulseState

    def clear_after_s(self, parameters: FastPulseParameters, interval_s: float) -> float:
        return 30.0

    def observe(self, state: FastPulseState, beat: Beat, parameters: FastPulseParameters) -> None:
        state.steps += 1
        state.rate = beat.rate

    def judge(self, state: FastPulseState, parameters: FastPulseParameters) -> RuleResult:
        if state.steps <= parameters.patience:
            return RuleResult(Status.WARMING_UP, "The pulse has just begun.", data_points=state.steps)
        fired = state.rate > parameters.threshold
        return RuleResult(
            Status.FIRED if fired else Status.OK,
            f"The pulse is {state.rate:g}.",
            measured=state.rate,
            threshold=parameters.threshold,
            data_points=state.steps,
            details={"steps": state.steps, "rate": state.rate},
        )
