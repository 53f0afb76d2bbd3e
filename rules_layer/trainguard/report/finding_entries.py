"""A finding as the report has it: its fields stand among those of its place among the others."""

from msgspec.structs import replace

from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.finding import EpisodeEntry, finding_fields
from trainguard.pricing.cost import Cost
from trainguard.report.causes import wasted_share
from trainguard.report.document import FindingEntry, Money

MOST_NAMES = 512
"""Of the nodes, and of the GPUs, of an episode: one that goes on has all of a job's."""


def finding_entry(ranked: RankedFinding, all_nodes: int) -> FindingEntry:
    """Return a finding's entry; ``all_nodes`` is how many nodes the job has."""
    affected, of = ranked.nodes
    of_finding = finding_fields(ranked.finding)
    said = {name: value for name, value in of_finding.items() if name in FindingEntry.__struct_fields__}
    episodes: list[EpisodeEntry] = said["episodes"]
    said["episodes"] = [replace(each, nodes=each.nodes[:MOST_NAMES], gpus=each.gpus[:MOST_NAMES]) for each in episodes]
    said["cost"] = None if ranked.loss is None else _money(ranked.loss)
    return FindingEntry(
        **said,
        score=round(ranked.score, 1),
        ongoing=ranked.ongoing,
        affected_share=ranked.affected_share,
        wasted_share=wasted_share(ranked, all_nodes),
        worst=ranked.worst,
        nodes_affected=affected,
        nodes=of,
        explained_by=ranked.explained_by,
        explained_share=round(ranked.explained_share, 4),
        reasons={rule: round(part, 4) for rule, part in ranked.reasons.items() if part},
        earlier_episodes=ranked.earlier_episodes,
        names_left_out=sum(max(len(names) - MOST_NAMES, 0) for each in episodes for names in (each.nodes, each.gpus)),
    )


def _money(cost: Cost) -> Money:
    return Money(lost=round(cost.lost, 2), spent=round(cost.spent, 2), currency=cost.currency, sentence=str(cost))
