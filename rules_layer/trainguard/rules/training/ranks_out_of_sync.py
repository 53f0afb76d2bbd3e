"""RanksOutOfSync: ranks that should hold the same parameters do not, by checksums ``trainguard/checksum/<rank>``."""

import re
from statistics import mode

from trainguard.core.finding import Fact
from trainguard.core.units import counted
from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.training.readings import scalar, step_fact, used
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import fires, said, step_spec

APART, EQUAL = "apart", "equal"


def _ranks(sheet: FactSheet) -> Words:
    ranks = int(sheet.number("ranks"))
    if not fires(sheet):
        return said(sheet, f"the checksums of {counted(ranks, 'rank')} are equal", "", "")
    apart, same = int(sheet.number("ranks_apart")), int(sheet.number("ranks_alike"))
    named = sheet.all("checksum_apart")
    has = "had" if sheet.past else "has"
    shown_ranks = ", ".join(f"{(each.device or '').removeprefix('rank ')} {has} {each.value}" for each in named)
    differ = "differed" if sheet.past else "differ"
    more = f" and {apart - len(named)} more {differ}" if apart > len(named) else ""
    have = "had" if sheet.past else "has" if same == 1 else "have"
    return said(
        sheet,
        f"{same} of {ranks} ranks {have} the checksum {sheet.name('checksum')}, rank {shown_ranks}{more}",
        "Stop and go back to a checkpoint before this step: from here on ranks train different models. Look for "
        "parameters outside the distributed wrapper, a rank that loaded another checkpoint or has another seed, "
        "steps that one rank skips, and a broken GPU: if it is always the same rank, replace its node.",
        "ranks held different parameters",
    )


CHECKSUM = re.compile(r"trainguard/checksum/(?P<rank>[0-9]{1,6})")
SHOWN = 6


class RanksOutOfSync(StepRule[StepParameters, StepState]):
    """Fires while ranks hold different parameters."""

    spec = step_spec(
        "RanksOutOfSync",
        title="Ranks out of sync",
        looks_at="a checksum of the parameters of each rank",
        fires_when="ranks hold other parameters than most do",
        condition="the checksums of the parameters of two ranks differ at the same step",
        measures=(Measure("ranks that differ from most"),),
        needs=(
            "It checks a checksum of the parameters per rank: record one number for each as trainguard/checksum/RANK, "
            "for all ranks at the same steps."
        ),
        say=_ranks,
        kinds=(APART, EQUAL),
    )

    def check(self, state: StepState, step: StepView, parameters: StepParameters) -> Check | None:
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
            kind=APART if apart else EQUAL,
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
