"""What agents get of a table of operations: who holds the ranks up, and what each change saves."""

from trainguard.core.finding import Severity
from trainguard.report.agents.answers import before_larger
from trainguard.report.agents.foreign import foreign
from trainguard.report.agents.verdict import (
    MOST_LISTED,
    AgentFinding,
    AgentPlace,
    AgentVerdict,
    Answer,
    of_place,
    place_name,
    rounded,
    short,
)
from trainguard.report.verdict_document import VerdictWord as Word
from trainguard.rules.change import ChangeCode
from trainguard.stragglers.causes import StragglerCause
from trainguard.stragglers.verdict import RankShare, StragglerVerdict


def of_stragglers(source: str, found: StragglerVerdict) -> AgentVerdict:
    told = [*found.causes, *(each for each in found.parts if each.saves >= _SAVES)]
    first = told[0] if told else None
    unsure = first is not None and (first.unsure or first not in found.causes)
    change = ChangeCode.NOTHING if first is None else straggler_change(first)
    price = found.price
    finding, place = None, AgentPlace()
    if first is not None:
        facts = {
            "slowdown": round(found.slowdown, 3),
            "mean_step_s": round(found.recorded_s, 4),
            "explains_share": round(first.share, 3),
            **({} if first.times is None else {"times_of_peers": round(first.times, 2)}),
            **({} if first.stage is None else {"stage": float(first.stage)}),
        }
        finding = AgentFinding(rule="stragglers", kind=first.kind.value, severity=Severity.HIGH, facts=facts)
        rank, operator = first.ranks[0] if first.ranks else None, place_name(first.operation)
        place = AgentPlace(rank=rank, node=place_name(first.host), operator=operator)
    return of_place(
        source,
        change,
        verdict=Word.HEALTHY if first is None else Word.WASTED,
        confidence="medium" if found.confidence == "low" or unsure else "high",
        finding=finding,
        place=place,
        wasted_share=rounded(max(1.0 - 1.0 / found.slowdown, 0.0)),
        lost=None if price is None else round(price.lost, 2),
        currency=None if price is None else price.currency,
        saves_share=None if first is None else rounded(first.saves),
        unread={"rows": sum(found.faults.values())} if found.faults else {},
        next=["what_if"],
    )


# A part of the loss that explains less than most of it is listed from this share of a step on.
_SAVES = 0.05


def straggler_change(cause: StragglerCause) -> ChangeCode:
    return _OF_CAUSES.get(cause.kind.value, ChangeCode.BALANCE_RANKS)


_OF_CAUSES = {"transfers": ChangeCode.OVERLAP_COMMUNICATION}


def straggler_what_ifs(found: StragglerVerdict) -> Answer:
    """Return what the replay of a step says it saves if parts of the work run at the pace of their peers.

    One rank alone often saves nothing, as its peers are as slow: then its group's saving stands beside it.
    """
    shown = [*found.causes, *found.parts][:MOST_LISTED]
    reasons = before_larger([each.saves for each in shown], lambda _, __: "explains_more_of_the_loss")
    return {
        "slowdown": round(found.slowdown, 3),
        "saves_share_together": rounded(max(1.0 - 1.0 / found.slowdown, 0.0)),
        "recorded_step_s": short(found.recorded_s),
        "even_step_s": short(found.even_s),
        "changes": [
            {
                "change": straggler_change(each),
                "do": straggler_change(each).do,
                "kind": each.kind,
                "ranks": each.ranks[:MOST_LISTED],
                "stage": each.stage,
                "host": foreign(each.host) if each.host else None,
                "operation": foreign(each.operation) if each.operation else None,
                "saves_share": rounded(each.saves),
                **why,
            }
            for each, why in zip(shown, reasons, strict=True)
        ],
        "ranks": [
            {"rank": each.rank, "saves_share": rounded(each.saves), **_group_of(each, found)}
            for each in found.ranks[:4]
        ],
    }


def _group_of(rank: RankShare, found: StragglerVerdict) -> Answer:
    """Return the group of ranks that saves most together, where that is more than the rank saves alone."""
    every = [*found.causes, *found.parts]
    groups: list[tuple[float, Answer]] = [
        (each.saves, {"kind": each.kind, "ranks": len(each.ranks)})
        for each in every
        if rank.rank in each.ranks and len(each.ranks) > 1
    ]
    groups += [(each.saves or 0.0, {"stage": each.stage}) for each in found.stages if each.stage == rank.stage]
    groups += [
        (each.saves or 0.0, {"dp_rank": each.dp_rank}) for each in found.dp_ranks if each.dp_rank == rank.dp_rank
    ]
    saves, named = max(groups, key=lambda group: group[0], default=(0.0, {}))
    if saves > (rank.saves or 0.0) + _ALONE:
        return {"with_group": {**named, "saves_share": rounded(saves)}}
    return {}


# A group that saves so much more of a step than one of its ranks stands beside it.
_ALONE = 0.005
