"""A finding as the report has it: its fields stand among those of its place among the others."""

from msgspec.structs import replace

from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.finding import EpisodeEntry, finding_fields
from trainguard.pricing.cost import Bill
from trainguard.report.document import FindingEntry, Money
from trainguard.report.evaluated_job import EvaluatedJob

MOST_NAMES = 512
"""Of the nodes, and of the GPUs, of an episode: one that goes on has all of a job's."""


def finding_entry(ranked: RankedFinding, judged: EvaluatedJob) -> FindingEntry:
    """Return the entry of a finding of a job."""
    verdict, reach = ranked.verdict, ranked.verdict.over_nodes
    of_finding = finding_fields(ranked.finding)
    said = {name: value for name, value in of_finding.items() if name in FindingEntry.__struct_fields__}
    episodes: list[EpisodeEntry] = said["episodes"]
    said["episodes"] = [replace(each, nodes=each.nodes[:MOST_NAMES], gpus=each.gpus[:MOST_NAMES]) for each in episodes]
    said["facts"] = list(ranked.finding.facts)
    said["cost"] = _money(ranked, judged)
    return FindingEntry(
        **said,
        score=round(ranked.score, 1),
        ongoing=ranked.ongoing,
        affected_share=verdict.affected_share,
        wasted_share=ranked.wasted_share,
        worst=verdict.result.worst,
        nodes_affected=reach.affected,
        nodes=reach.nodes,
        explained_by=ranked.explained_by,
        explained_share=round(ranked.explained_share, 4),
        reasons={rule: round(part, 4) for rule, part in ranked.reasons.items() if part},
        earlier_episodes=verdict.earlier_episodes,
        names_left_out=sum(max(len(names) - MOST_NAMES, 0) for each in episodes for names in (each.nodes, each.gpus)),
    )


def _money(ranked: RankedFinding, judged: EvaluatedJob) -> Money | None:
    bill, loss = judged.account.bill(), ranked.loss
    if loss is None or loss.usd is None or ranked.finding.cost is None or not isinstance(bill, Bill):
        return None
    return Money(
        lost=round(loss.usd, 2), spent=round(bill.spent, 2), currency=bill.currency, sentence=ranked.finding.cost
    )
