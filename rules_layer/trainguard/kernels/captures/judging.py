"""From the ranks of a capture to its verdict."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from trainguard.finding import Fact
from trainguard.kernels.captures.verdict import Proof, RuleVerdict
from trainguard.kernels.columns import is_cut
from trainguard.kernels.document import RankProfile
from trainguard.kernels.findings.finding import FEW_STEPS, KernelFinding
from trainguard.kernels.ranks.entries import AcrossRanks
from trainguard.kernels.ranks.late import beside_late_rank
from trainguard.plain_text import one_line

MOST_RULES = 64
EVIDENCE = 3
NAMED = 8
"""Ranks, files and notes that are named."""

LONGEST_TEXT = 400
LONGEST_NAME = 120


def is_judged(rank: RankProfile) -> bool:
    """Whether rules can judge a rank: its file is whole, with work of a GPU in three steps or more."""
    return not is_cut(rank.quality.counts) and rank.busy_ns > 0 and len(rank.steps) + rank.steps_left_out >= FEW_STEPS


def rule_verdicts(ranks: Sequence[RankProfile], across: AcrossRanks | None) -> list[RuleVerdict]:
    """Return the rules that fire on any rank or across ranks: what explains most of the time comes first."""
    found: dict[str, list[tuple[str, KernelFinding]]] = {}
    for rank in ranks:
        for finding in beside_late_rank(rank.findings, across):
            found.setdefault(finding.id, []).append((called(rank), finding))
    for finding in [] if across is None else across.findings:
        found.setdefault(finding.id, []).append(("", finding))
    return sorted((_of_rule(rule, entries) for rule, entries in found.items()), key=_place)[:MOST_RULES]


def _place(found: RuleVerdict) -> tuple[bool, float, int, int, str]:
    """Return a key for sorting rules as findings are; those that are sure come first."""
    won = -round(found.gain_share, 2), -found.severity.rank, -found.gain_ns_per_step
    return (not found.sure, *won, found.rule)


def called(rank: RankProfile) -> str:
    """Return how a rank is called."""
    return _short(rank.trace.rpartition("/")[2]) if rank.rank is None else f"rank {rank.rank}"


def notes_of(ranks: Sequence[RankProfile], across: AcrossRanks | None) -> list[str]:
    """Return what traces lack and what could not be compared, the most frequent first."""
    times: dict[str, int] = {}
    for rank in ranks:
        for line in (*rank.quality.damaged, *rank.quality.missing):
            times[line] = times.get(line, 0) + 1
    lines = sorted(times, key=lambda line: -times[line])
    said = [f"{line} ({times[line]} of {len(ranks)} traces)" if len(ranks) > 1 else line for line in lines]
    return [_text(line) for line in (*([] if across is None else across.notes), *said)][:NAMED]


def named_faults(faults: Mapping[str, str]) -> dict[str, str]:
    """Return the first files that could not be read and why, as a verdict names them."""
    return {_short(name): _text(faults[name]) for name in sorted(faults)[:NAMED]}


def _of_rule(rule: str, entries: Sequence[tuple[str, KernelFinding]]) -> RuleVerdict:
    sure = [each for each in entries if each[1].confidence == "normal"]
    counted = sure or entries
    _, worst = max(counted, key=lambda each: (each[1].gain.share, each[1].severity.rank))
    return RuleVerdict(
        rule=rule,
        severity=max((each.severity for _, each in counted), key=lambda each: each.rank),
        kind=worst.kind,
        facts=[_fact(each) for each in worst.facts],
        value=worst.value,
        threshold=worst.threshold,
        gain_ns_per_step=worst.gain.ns_per_step,
        gain_share=worst.gain.share,
        sure=len(sure),
        unsure=len(entries) - len(sure),
        ranks=[name for name, _ in counted if name][:NAMED],
        evidence=[
            Proof(what=_short(each.what), duration_ns=each.duration_ns, count=each.count, step=each.step)
            for each in worst.evidence[:EVIDENCE]
        ],
    )


def _fact(fact: Fact) -> Fact:
    return replace(fact, value=_text(fact.value)) if isinstance(fact.value, str) else fact


def _text(text: str) -> str:
    return one_line(text, LONGEST_TEXT)


def _short(text: str) -> str:
    return one_line(text, LONGEST_NAME)
