"""GPUHealth: GPUs with faults of hardware, that are throttled, or that have vanished.

Sources: NVIDIA, "XID Errors", and NVML's documentation of clock event reasons, ECC counters and remapped rows. A clock
is compared with its peers', as a power limit lowers all of them.
"""

from typing import Any

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.rules.gpu_health import problems as output
from trainguard.rules.gpu_health.faults import KEPT_MINUTES, HealthState
from trainguard.rules.gpu_health.problems import HealthDetails, HealthKind
from trainguard.rules.gpu_health.text import text
from trainguard.rules.protocol import Percent, PositiveInt, RuleParameters, SystemRule
from trainguard.rules.rule_inputs import NodeMinute, NodeView, share_of_paid
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import SYSTEM, ParameterHelp, RuleSpec
from trainguard.rules.windows.warm_up import lacks_utilization, waiting

NAMED = 4


class GPUHealthParameters(RuleParameters, frozen=True, kw_only=True):
    """``clock_loss`` in percent, ``loaded_minutes`` of the newest ten minutes in which the GPU is busy."""

    clock_loss: Percent = 10.0
    loaded_minutes: PositiveInt = 5


class GPUHealth(SystemRule[GPUHealthParameters, HealthState]):
    """Fires for a GPU that has vanished, has a fault of hardware, or is throttled under load."""

    spec = RuleSpec(
        name="GPUHealth",
        title="GPU health",
        looks_at="each GPU's errors, clocks and links",
        fires_when="a GPU has vanished, has a fault of hardware, or is throttled under load",
        condition=(
            "a GPU has vanished or does not answer, reported an XID of hardware or an uncorrectable ECC error, lost "
            "lanes of its PCIe link, or ran {clock_loss} % or more below its clock, throttled, in {loaded_minutes} of "
            "its newest minutes under load"
        ),
        measures=(Measure("clock lost to throttling", "%"),),
        parameters={
            "clock_loss": ParameterHelp("% of the clock", "a throttled GPU that loses as much counts"),
            "loaded_minutes": ParameterHelp(
                f"minutes, at most {KEPT_MINUTES}", "in so many minutes under load it must be seen"
            ),
        },
        inputs=SYSTEM,
        text=text,
        details=HealthDetails,
        section="trainguard.rules.gpu_health.section:blocks",
    )

    clear_s = 1_800.0
    """30 min: a GPU that is throttled again soon after has one fault, and not two."""

    def observe(self, state: HealthState, minute: NodeMinute, parameters: GPUHealthParameters) -> None:
        del parameters
        state.fold(minute)

    def judge(self, state: HealthState, view: NodeView, parameters: GPUHealthParameters) -> RuleResult:
        if view.watermark_s is None:
            return waiting(view)
        if not state.gpus:
            if not view.gpu_names:
                return lacks_utilization(view)
            return _not_collected(view)
        needed = min(parameters.loaded_minutes, KEPT_MINUTES)
        problems = output.problems_of(
            state, view.node, view.watermark_s, clock_loss=parameters.clock_loss, minutes=needed
        )
        details = output.details_of(state, problems) if view.detailed else output.NO_DETAILS
        if not problems and not state.seen:
            return _not_collected(view)
        if not problems:
            return RuleResult.of(
                text,
                Status.OK,
                HealthKind.HEALTHY,
                output.healthy_facts(state, view.node),
                data_points=state.minutes,
                details=details,
            )
        worst = problems[0]
        others = sorted({each.gpu for each in problems} - {worst.gpu}, key=lambda gpu: (len(gpu), gpu))
        where: dict[str, Any] = {"node": view.node, "end": view.watermark_s}
        also = [Fact(name="other_gpu", value=gpu, **where) for gpu in others[:NAMED]]
        if others:
            also = [Fact(name="other_gpus", value=len(others), unit="GPUs", **where), *also]
        lost = max((each.lost_min for each in problems if each.lost_min is not None), default=None)
        return RuleResult.of(
            text,
            Status.FIRED,
            worst.look,
            (*worst.facts, *also),
            measured=worst.measured,
            threshold=None if worst.measured is None else parameters.clock_loss,
            worst=worst.gpu,
            data_points=state.minutes,
            affected_share=min((view.watermark_s - worst.since) / _watched_s(view.watermark_s, view), 1.0),
            wasted_share=None if lost is None else share_of_paid(view, 60.0 * lost),
            onset=worst.since,
            gpus=tuple(dict.fromkeys(each.gpu for each in problems)),
            time_left_s=0.0 if worst.kind == "vanished" else None,  # the job has lost the GPU already
            details=details,
        )


def _not_collected(view: NodeView) -> RuleResult:
    facts = (Fact(name="series", value=0, node=view.node),)
    return RuleResult.of(text, Status.NOT_APPLICABLE, HealthKind.NOT_COLLECTED, facts, details=output.NO_DETAILS)


def _watched_s(watermark_s: float, view: NodeView) -> float:
    since = watermark_s if view.first_sample_at is None else view.first_sample_at
    return max(watermark_s - since, view.interval_s)
