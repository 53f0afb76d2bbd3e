"""What agents get beside the verdict: a finding's facts, the ledger, two runs beside each other, and what-ifs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainguard.core.finding import severity_rank
from trainguard.hangs.verdict import HangVerdict
from trainguard.kernels.changes import KernelComparison, RankComparison
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.ranking import is_symptom
from trainguard.kernels.verdict import RuleVerdict
from trainguard.ledger.bucket import BUCKET_WORDS
from trainguard.report.agents.foreign import (
    CUSTOM,
    Foreign,
    foreign,
    foreign_list,
    own,
    rule_code,
    split_facts,
)
from trainguard.report.agents.verdict import MOST_LISTED, Answer, ranked_kernels, short
from trainguard.report.document import Change as Difference
from trainguard.report.document import FindingEntry, Report
from trainguard.rules import family_rules
from trainguard.rules.change import ChangeCode
from trainguard.rules.registry import RULE_NAMES, spec_of

_MOST_EPISODES = 3


def explained(report: Report, rule: str = "") -> Answer:
    """Return the findings of a job, or one rule's, by facts: at most three, the most important first."""
    wanted = rule.rpartition("/")[2].lower()
    chosen = [each for each in report.findings if each.rule.rpartition("/")[2].lower().startswith(wanted)]
    first = sorted(chosen, key=lambda each: each.rule != report.verdict.rule)
    silent = [each for each in report.rules if wanted and each.rule.rpartition("/")[2].lower().startswith(wanted)]
    return {
        "job": foreign(report.job.name),
        "findings": [_explained(each, report.cost.currency, ended=report.job.has_ended) for each in first[:3]],
        "left_out": max(len(first) - 3, 0),
        **(
            {
                "rules": [
                    {"rule": rule_code(each.rule), "status": each.status, "fires_when": spec_of(each.rule).fires_when}
                    for each in silent[:3]
                ]
            }
            if silent and not first
            else {}
        ),
    }


def _explained(each: FindingEntry, currency: str | None, *, ended: bool) -> Answer:
    numbers, names = split_facts(each.facts)
    code = rule_code(each.rule)
    change = spec_of(each.rule).change_for(each.finding_kind)
    thresholds = [fact for fact in each.facts if fact.threshold is not None and own(fact.name)]
    return {
        "rule": code,
        "kind": CUSTOM if code == CUSTOM else own(each.finding_kind),
        **({"name": foreign(each.rule)} if code == CUSTOM else {}),
        "severity": each.severity,
        "ongoing": each.ongoing,
        "change": change,
        "do": change.said(ended=ended),
        "facts": {} if code == CUSTOM else numbers,
        "names": names,
        "thresholds": {} if code == CUSTOM else {fact.name: fact.threshold for fact in thresholds[:3]},
        "worst": None if each.worst is None else foreign(each.worst),
        "nodes_affected": each.nodes_affected,
        "nodes": each.nodes,
        "wasted_share": _rounded(each.wasted_share),
        "lost": each.lost,
        "currency": currency,
        "explained_by": None if each.explained_by is None else rule_code(each.explained_by),
        "episodes": [
            {
                "start": episode.start,
                "end": episode.end,
                "nodes": foreign_list(episode.nodes, 3),
                "gpus": foreign_list(episode.gpus, 3),
                "wasted_s": episode.wasted_s,
            }
            for episode in each.episodes[-_MOST_EPISODES:]
        ],
        "earlier_episodes": each.earlier_episodes + max(len(each.episodes) - _MOST_EPISODES, 0),
    }


def ledger_of(report: Report, node: int | None = None) -> Answer:
    """Return where the paid GPU time went, of the job or of a node by its place in the report, from 0."""
    entries, whose = report.ledger, None
    if node is not None and node < len(report.ledger_by_node):
        chosen = report.ledger_by_node[node]
        entries, whose = chosen.ledger, foreign(chosen.node)
    return {
        "job": foreign(report.job.name),
        **({} if whose is None else {"node": whose}),
        "nodes": len(report.ledger_by_node),
        "goodput_share": _rounded(report.goodput),
        "currency": report.cost.currency,
        "buckets": [
            {
                "bucket": each.bucket,
                "share": _rounded(each.share),
                "gpu_s": round(each.gpu_seconds),
                **({} if each.usd is None else {"cost": round(each.usd, 2)}),
                **({"estimated": True} if each.estimated else {}),
            }
            for each in sorted(entries, key=lambda each: -each.share)
            if each.share
        ],
    }


def compared_answer(report: Report) -> Answer:
    held = report.comparison
    if held is None:
        return {}
    return {
        "here": foreign(report.job.name),
        "there": foreign(held.job),
        "there_level": held.level,
        "totals": [_difference(each, each.what.replace(" ", "_")) for each in held.totals],
        "ledger": [_difference(each, _BUCKETS[each.what]) for each in held.ledger[:MOST_LISTED]],
        "steps": [_difference(each, foreign(each.what)) for each in held.steps[:MOST_LISTED]],
        "loss": [_difference(each, foreign(each.what)) for each in held.loss[:MOST_LISTED]],
        "found_here": [rule_code(each) for each in held.found_here[:MOST_LISTED]],
        "found_there": [rule_code(each) for each in held.found_there[:MOST_LISTED]],
    }


_BUCKETS = {words: bucket.value for bucket, words in BUCKET_WORDS.items()}


def _difference(each: Difference, what: str | Foreign) -> Answer:
    return {"what": what, "unit": each.unit, "here": short(each.here), "there": short(each.there)}


def what_ifs(report: Report) -> Answer:
    """Return the changes that the findings ask for, and what each can save at most; no two save the same time.

    They stand in the order of the verdict. One that stands before a change that saves more says why.
    """
    shown, ended = report.findings[:MOST_LISTED], report.job.has_ended
    reasons = before_larger([each.wasted_share or 0.0 for each in shown], why_of_jobs(shown))
    return {
        "job": foreign(report.job.name),
        "wasted_share": _rounded(report.verdict.wasted_share),
        "saves_share_together": _rounded(min(sum(each.wasted_share or 0.0 for each in report.findings), 1.0)),
        "spent": report.cost.spent,
        "currency": report.cost.currency,
        "changes": [
            {
                "change": (change := spec_of(each.rule).change_for(each.finding_kind)),
                "do": change.said(ended=ended),
                "rule": rule_code(each.rule),
                "saves_share": _rounded(each.wasted_share),
                "saves": each.lost,
                "explained_by": None if each.explained_by is None else rule_code(each.explained_by),
                **why,
            }
            for each, why in zip(shown, reasons, strict=True)
        ],
    }


def kernels_answer(document: KernelProfiles) -> Answer:
    """Return the findings on traces and the kernels with most time, of the rank with the longest steps."""
    slowest = max(document.ranks, key=lambda rank: rank.window_ns, default=None)
    busy = None if slowest is None or not slowest.window_ns else slowest.busy_ns / slowest.window_ns
    return {
        "source": foreign(document.job or document.source),
        "ranks": len(document.ranks) + document.ranks_left_out,
        "findings": _kernel_findings(ranked_kernels(document)),
        **({} if slowest is None else {"rank": slowest.rank, "busy_share": _rounded(busy)}),
        "kernels": [
            {
                "name": foreign(each.name),
                "operator": foreign(each.operator) if each.operator else None,
                "time_ms": short(each.total_ns / 1e6),
                "runs": each.count,
            }
            for each in ([] if slowest is None else slowest.kernels[:5])
        ],
        "unread": len(document.unread),
    }


def captured_answer(report: Report) -> Answer:
    """Return what the newest capture of a job shows; empty where there is none."""
    held = report.kernels
    if held is None:
        return {}
    verdict = held.verdict
    return {
        "job": foreign(report.job.name),
        "captures": held.captures,
        "newer_waits": held.waits,
        "ranks": verdict.traces,
        "steps": verdict.steps,
        "busy_share": _rounded(verdict.busy_share),
        "findings": _kernel_findings(verdict.rules),
    }


def _kernel_findings(found: Sequence[KernelFinding] | Sequence[RuleVerdict]) -> list[Answer]:
    shown = [_kernel_finding(each) for each in found[:5]]
    reasons = before_larger([each["saves_share"] or 0.0 for each in shown], why_of_kernels(shown))
    return [{**each, **why} for each, why in zip(shown, reasons, strict=True)]


def _kernel_finding(each: KernelFinding | RuleVerdict) -> Answer:
    rule, gain, sure = (
        (each.id, each.gain.share, each.confidence == "normal")
        if isinstance(each, KernelFinding)
        else (each.rule, each.gain_share, bool(each.sure))
    )
    numbers, names = split_facts(each.facts)
    change = spec_of(rule).change_for(each.kind)
    return {
        "rule": rule_code(rule),
        "kind": own(each.kind),
        "severity": each.severity,
        "sure": sure,
        "change": change,
        "do": change.do,
        "saves_share": _rounded(gain),
        "facts": dict(list(numbers.items())[:5]),
        "names": {name: value for name, value in names.items() if name != "remedy"},
        "evidence": [
            {"what": foreign(proof.what), "time_ms": short(proof.duration_ns / 1e6), "runs": proof.count}
            for proof in each.evidence[:2]
        ],
    }


def rules_answer(named: str = "") -> Answer:
    """Return the rules whose name begins so, with what makes them fire; without a name the names alone."""
    everything = [each for each in (*RULE_NAMES, *family_rules.names()) if rule_code(each) != CUSTOM]
    if not named:
        return {"rules": everything}
    wanted = named.rpartition("/")[2].lower()
    found = [each for each in everything if each.rpartition("/")[2].lower().startswith(wanted)]
    return {"rules": [_of_rule(each) for each in found[:4]], "left_out": max(len(found) - 4, 0)}


def _of_rule(rule: str) -> Answer:
    spec = spec_of(rule)
    return {
        "rule": rule_code(rule),
        "looks_at": spec.looks_at,
        "fires_when": spec.fires_when,
        "changes": sorted({change.value for change in spec.changes.values()}),
        "parameters": sorted(spec.parameters),
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def kernel_changes(compared: KernelComparison) -> Answer:
    """Return what takes longer or less in the traces than in others, rank by rank; before is the other place."""
    return {"ranks": [_rank_changes(each) for each in compared.ranks[:4]], "not_compared": len(compared.notes)}


def _rank_changes(each: RankComparison) -> Answer:
    step = each.step
    found = sorted(each.kernels, key=lambda kernel: -abs(kernel.delta_ns))
    return {
        "rank": each.rank,
        "comparable": each.comparable.verdict,
        "change": each.change,
        "worsened_share": _rounded(each.worsened),
        **({} if step is None else {"before_ms": short(step.before_ns / 1e6), "after_ms": short(step.after_ns / 1e6)}),
        "kernels": [
            {"name": foreign(kernel.name), "change": kernel.change, "delta_ms": short(kernel.delta_ns / 1e6)}
            for kernel in found[:5]
            if kernel.change != "same"
        ],
    }


def hang_answer(hang: HangVerdict) -> Answer:
    """Return who holds up a job, and in what the others wait."""
    return {
        "ranks": hang.ranks,
        "ranks_waiting": len(hang.victims),
        "ranks_without_dump": hang.without_dump[:MOST_LISTED],
        "operation": foreign(hang.operation),
        "sequence": hang.sequence,
        "group": foreign(hang.group_description or hang.group),
        "waiting_line": foreign(hang.waiting_line),
        "culprits": [
            {
                "rank": each.rank,
                "kind": own(each.kind),
                "operation": foreign(each.operation),
                "sequence": each.sequence,
                "line": foreign(each.line),
                "ranks_waiting": each.waiting,
            }
            for each in hang.details[:MOST_LISTED]
        ],
        "change": ChangeCode.FIND_HANG,
        "do": ChangeCode.FIND_HANG.do,
        "unread": len(hang.unread),
    }


# Savings are compared in percents, as the order of findings compares them.
_PERCENTS = 2

# Of the place of a change, and of a later one that saves more.
Why = Callable[[int, int], str]


def before_larger(saves: Sequence[float], why: Why) -> list[Mapping[str, str]]:
    """Return for each change why it stands before the largest of those behind it; nothing where none saves more."""
    found: list[Mapping[str, str]] = []
    for place, saved in enumerate(saves):
        behind = range(place + 1, len(saves))
        largest = max(behind, key=lambda at: saves[at], default=place)
        more = round(saves[largest], _PERCENTS) > round(saved, _PERCENTS)
        found.append({"before_larger": why(place, largest)} if more else {})
    return found


def why_of_jobs(findings: Sequence[FindingEntry]) -> Why:
    """Return the reasons of a job's order: causes, what goes on and what is severe come first."""

    def why(first: int, later: int) -> str:
        one, other = findings[first], findings[later]
        if other.explained_by == one.rule:
            return "is_its_cause"
        if one.ongoing and not other.ongoing:
            return "goes_on"
        if severity_rank(one.severity) > severity_rank(other.severity):
            return "more_severe"
        return "risks_more_than_it_has_lost" if one.wasted_share is None else "loses_more_now"

    return why


def why_of_kernels(findings: Sequence[Mapping[str, Any]]) -> Why:
    """Return the reasons of a trace's order: what is sure, and causes, come first."""

    def why(first: int, later: int) -> str:
        if findings[first]["sure"] and not findings[later]["sure"]:
            return "is_sure"
        return "larger_is_a_symptom" if is_symptom(findings[later]["rule"]) else "informs_less"

    return why
