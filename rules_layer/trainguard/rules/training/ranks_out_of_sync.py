"""RanksOutOfSync: ranks that should hold the same parameters do not.

The recorder saves a checksum of a rank's parameters as ``trainguard/checksum/<rank>``: a tensor with one number for
each rank, at the same step. In data parallel training all of them are equal to the last bit, as every rank applies the
same update to the same parameters; there is no tolerance. A rank whose checksum is not the most frequent one is out of
sync. Where the parameters are sharded, the checksums of ranks differ on purpose: save those of replicas
only.
"""

import re
from statistics import mode
from typing import ClassVar

from trainguard.finding import Fact
from trainguard.rules.parameter_help import STEPS
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import weights_text
from trainguard.rules.training.folds import scalar
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import step_fact, used
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.weights_text import RanksKind
from trainguard.tensors.step_view import StepView

CHECKSUM = re.compile(r"trainguard/checksum/(?P<rank>[0-9]{1,6})")
SHOWN = 6


class RanksOutOfSyncParameters(StepParameters, frozen=True, kw_only=True):
    """There is nothing to set but the range of steps."""

    rule_name: ClassVar[str] = "RanksOutOfSync"


SPEC = RuleSpec(
    name="training/RanksOutOfSync",
    family="training",
    title="Ranks out of sync",
    looks_at="a checksum of the parameters of each rank",
    fires_when="ranks hold other parameters than most do",
    condition="the checksums of the parameters of two ranks differ at the same step",
    measures=(Measure("ranks that differ from most"),),
    counts=STEPS,
    parameters={**RANGE_HELP},
    text=weights_text.ranks_out_of_sync,
)


class RanksOutOfSync(StepRule[RanksOutOfSyncParameters, StepState]):
    """Fires while ranks hold different parameters."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = RanksOutOfSyncParameters
    state_type = StepState
    needs = weights_text.RANKS_NEEDS

    def check(self, state: StepState, step: StepView, parameters: RanksOutOfSyncParameters) -> Check | None:
        """Compare the checksums of a step."""
        del parameters
        sums: dict[int, str] = {}
        for name in step.names:
            found = CHECKSUM.fullmatch(name)
            value = used(state, scalar, step, name) if found is not None else None
            if found is not None and value is not None:
                # As text, a NaN equals another one, and 0 does not equal -0.
                sums[int(found["rank"])] = repr(value)
        if len(sums) < 2:
            state.waiting += bool(sums)
            return None
        most = mode(sums[rank] for rank in sorted(sums))
        apart = [rank for rank in sorted(sums) if sums[rank] != most]
        return Check(
            step=step.step,
            at=step.at,
            fires=bool(apart),
            tensor=f"trainguard/checksum/{apart[0]}" if apart else None,
            value=float(len(apart)),
            threshold=0.0,
            kind=RanksKind.APART if apart else RanksKind.EQUAL,
            facts=(step_fact(step), *_facts(sums, most, apart)),
        )


def _facts(sums: dict[int, str], most: str, apart: list[int]) -> list[Fact]:
    return [
        Fact(name="ranks", value=len(sums)),
        Fact(name="ranks_apart", value=len(apart), threshold=0.0),
        Fact(name="ranks_alike", value=sum(each == most for each in sums.values())),
        Fact(name="checksum", value=most),
        *(Fact(name="checksum_apart", value=sums[rank], device=f"rank {rank}") for rank in apart[:SHOWN]),
    ]
