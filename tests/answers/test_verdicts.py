"""What verdicts of random jobs come to: histories of firing, the job's verdicts, findings, and what each claims."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.answers.recorded import compare, digest, plain_facts, plain_result
from trainguard.core.finding import Episode, Severity
from trainguard.core.records import JOB_NODE, Status
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.engine.verdicts.ranking import rank_findings
from trainguard.engine.verdicts.verdict import (
    JUDGED,
    RuleOutcome,
    combine,
    ends_episode,
    final,
    shown_status,
    with_liveness,
)
from trainguard.ledger.bucket import ROWS, Bucket
from trainguard.ledger.job import Ledger
from trainguard.ledger.node import NodeLedger, empty_amounts
from trainguard.pricing.cost import PaidTime
from trainguard.rules.rule_result import RuleResult

FOLDER = Path(__file__).with_name("verdicts")
GROUPS, GROUP = 8, 4
# Rules with their thresholds: symptoms, what explains them, and what neither is.
RULES = {
    "LowGPUUtilization": 70.0,
    "CPUBottleneck": 50.0,
    "IOBottleneck": 50.0,
    "BatchSize": None,
    "StepOutlier": 3.0,
    "MaxInitializationTime": 20.0,
    "Dataloader": None,
    "GPUMemoryIncrease": 5.0,
    "HungJob": 10.0,
    "LoadBalancing": 0.5,
}

NODES = ("algo-1", "algo-2", "algo-10")
MINUTE_S = 60.0
BUCKETS = (Bucket.COMPUTE, Bucket.COMPUTE, Bucket.IDLE, Bucket.DATA, Bucket.PEERS, Bucket.UNEXPLAINED)

Random = np.random.Generator


@dataclass(frozen=True)
class Fault:
    """When something was wrong, in minutes, and on which of a job's nodes."""

    start: int
    end: int
    nodes: tuple[str, ...]


class Job:
    """A random job of up to three nodes, with up to three faults that several rules see at about the same time."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.every = int(self.random.choice([2, 5, 5, 10]))
        self.minutes = self.every * int(self.random.choice([12, 24, 48]))
        self.nodes = NODES[: 1 + seed % 3]
        self.ended = seed % 2 == 0
        self.faults = [self._fault() for _ in range(int(self.random.integers(1, 4)))]
        self.ends = {node: self._end(node) for node in (*self.nodes, JOB_NODE)}

    def one_of(self, *values: Any) -> Any:
        """Return one of some values."""
        return values[int(self.random.integers(len(values)))]

    def _fault(self) -> Fault:
        start = self.every * int(self.random.integers(0, self.minutes // self.every))
        end = start + self.every * int(self.random.integers(1, self.minutes // self.every))
        some = tuple(node for node in self.nodes if self.random.random() < 0.6)
        return Fault(start, end, some or self.nodes)

    def _end(self, node: str) -> int:
        """Return the minute up to which a node has written: some fall silent before the others."""
        behind = self.one_of(0, 0, 0, 14, 15, 40) if node == "algo-2" else 0
        return max(self.minutes - behind, 10)

    def ledger(self) -> Ledger:
        """Return where the paid time went: each few minutes of a node to a bucket."""
        cells = self.minutes // self.every
        edges = MINUTE_S * self.every * np.arange(cells + 1, dtype=np.float64)
        nodes = []
        for node in self.nodes:
            amounts = empty_amounts(cells)
            for cell in range(cells):
                amounts[ROWS[self.one_of(*BUCKETS)], cell] = 4.0 * MINUTE_S * self.every
            lost_s = float(amounts.sum() - amounts[ROWS[Bucket.COMPUTE]].sum()) / 4.0
            nodes.append(NodeLedger(node, 4, edges, amounts, {f"gpu{gpu}": lost_s for gpu in (0, 1, 2, 10)}))
        return Ledger(nodes, self.one_of(None, 3.825))

    def verdicts(self) -> dict[str, dict[str, RuleOutcome]]:
        """Return the verdicts of some rules by node, as they count for the job."""
        chosen = [rule for rule in RULES if rule == "LowGPUUtilization" or self.random.random() < 0.5]
        return {rule: self._of_rule(rule) for rule in chosen}

    def _of_rule(self, rule: str) -> dict[str, RuleOutcome]:
        names = {"LoadBalancing": (*self.nodes, JOB_NODE), "MaxInitializationTime": (JOB_NODE,)}.get(rule, self.nodes)
        clear_after_s = MINUTE_S * self.one_of(3, 15, 20)
        seen = [fault for fault in self.faults if self.random.random() < 0.7]
        shift, kind = self.one_of(0, 0, 0, -10, -5, 4, 5, 6), int(self.random.integers(4))
        ahead = MINUTE_S * self.minutes
        found = {}
        for name in names:
            spans = [
                (each.start + shift, each.end + self.one_of(0, 0, 5))
                for each in seen
                if name == JOB_NODE or name in each.nodes
            ]
            history, result = self._judged(rule, name, spans, clear_after_s, kind)
            verdict = RuleOutcome(rule, result, history, clear_after_s)
            found[name] = with_liveness(verdict, MINUTE_S * self.ends[name], ahead)
        return found

    def _judged(
        self, rule: str, node: str, spans: list[tuple[int, int]], clear_after_s: float, kind: int
    ) -> tuple[FiringHistory, RuleResult]:
        """Judge a node from its start to its end; ``kind`` says what the rule's results tell."""
        history, result = FiringHistory(), RuleResult(Status.WARMING_UP, f"{rule} has seen little.")
        lost = 0.0
        for minute in range(0, self.ends[node], self.every):
            span = next((each for each in spans if each[0] <= minute < each[1]), None)
            at = MINUTE_S * minute + self.one_of(0.0, 0.0, 30.0)
            lost += 0.0 if span is None or kind == 0 else self.one_of(0.25, 0.5, 1.0) * MINUTE_S * self.every
            share = None if kind == 0 or not at else min(lost / at, 1.0)
            result = self._not_held(rule, minute) if span is None else self._held(rule, node, span, share, kind)
            if (
                history.update(
                    holds=span is not None, watermark_s=at, clear_after_s=clear_after_s, judged=result.status in JUDGED
                )
                and self.random.random() < 0.7
            ):
                history.alerted += 1
                history.alerted_severity = self.one_of(*Severity).value
            if span is not None:
                history.note(rule, result, watermark_s=at)
        return history, result

    def _held(self, rule: str, node: str, span: tuple[int, int], share: float | None, kind: int) -> RuleResult:
        start = MINUTE_S * span[0]
        gpus: tuple[tuple[str, ...], ...] = ((), ("gpu1",), ("gpu0", "gpu10"))
        if node == JOB_NODE:
            gpus = (), (f"{self.nodes[-1]}/gpu1",), tuple(f"{each}/gpu0" for each in self.nodes)
        idle = self.one_of("idle", "never used", None) if rule == "LowGPUUtilization" and span[0] % 20 == 0 else None
        measured = None if RULES[rule] is None else RULES[rule] + self.one_of(-4.0, -2.0, 1.0, 3.0)
        return RuleResult(
            Status.FIRED,
            f"{rule} is seen from minute {span[0]}.",
            measured=measured,
            threshold=RULES[rule],
            worst=self.one_of(None, "gpu0"),
            data_points=span[1],
            advice=f"Repair what {rule} saw." if kind % 2 else None,
            wasted_share=share,
            affected_share=self.one_of(None, None, 0.25, 0.5),
            pooled=self.one_of(None, (span[0], span[1])),
            confidence=self.one_of(None, 0.25, 0.5) if rule == "BatchSize" else None,
            idle_node=idle,
            onset=self.one_of(start, start - 600.0) if kind > 1 else None,
            until=start + 600.0 if kind == 3 and self.random.random() < 0.2 else None,
            gpus=self.one_of(*gpus),
            time_left_s=1_800.0 if rule == "GPUMemoryIncrease" else None,
            score=self.one_of(None, None, 30.0, 120.0) if rule == "Dataloader" else None,
            past_reason=f"{rule} was seen." if kind == 2 else None,
        )

    def _not_held(self, rule: str, minute: int) -> RuleResult:
        if minute < 10:
            return RuleResult(Status.WARMING_UP, f"{rule} has seen {minute} minutes.")
        others = (Status.NOT_APPLICABLE, Status.WAITING_FOR_DATA, Status.ERROR, Status.WARMING_UP)
        status = Status.OK if self.random.random() < 0.95 else self.one_of(*others)
        return RuleResult(status, f"{rule} sees nothing.", threshold=RULES[rule], data_points=minute)


def _verdict(verdict: RuleOutcome) -> dict[str, Any]:
    """Return what a verdict says, without what is as it is by default."""
    plain: dict[str, Any] = {
        "shown": shown_status(verdict).name,
        "result": plain_result(verdict.result),
        "history": _history(verdict.history),
        "episodes": [_episode(each) for each in verdict.episodes],
        "earlier": verdict.earlier_episodes,
        "affected": verdict.affected_share,
        "reach": [*verdict.reach],
        "liveness": verdict.liveness.value,
        "until": verdict.watermark_s,
        "worst_first": verdict.worst_first,
        "ends": ends_episode(verdict),
    }
    plain["result"].pop("details", None)
    return {name: each for name, each in plain.items() if each or each == 0}


def _history(history: FiringHistory) -> dict[str, Any]:
    """Return a history without the words of its episodes."""
    wordless = [msgspec.structs.replace(each, reason="", advice="") for each in history.episodes]
    plain: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(history, episodes=wordless))
    return plain


def _episode(episode: Episode) -> dict[str, Any]:
    told = [each.name for each in fields(episode) if each.name not in {"reason", "advice"}]
    return {name: value for name in told if (value := getattr(episode, name)) or value == 0}


def _finding(found: RankedFinding) -> dict[str, Any]:
    verdict = found.verdict
    said: dict[str, Any] = {
        "score": found.score,
        "ongoing": found.ongoing,
        "affected_share": verdict.affected_share,
        "worst": verdict.result.worst,
        "nodes": verdict.reach,
        "explained_by": found.explained_by,
        "explained_share": found.explained_share,
        "reasons": found.reasons,
    }
    said |= {"severity": found.finding.severity, "facts": plain_facts(found.finding.facts)}
    for name in ("loss", "alone"):
        loss = getattr(found, name)
        if loss is not None:
            said[name] = [loss.gpu_seconds, loss.rate, *(f"{bucket} {each}" for bucket, each in loss.buckets.items())]
    said |= {name: [_episode(each) for each in getattr(found, name)] for name in ("episodes", "unexplained")}
    return {name: value for name, value in said.items() if value or value == 0}


def finding_on(seed: int) -> dict[str, Any]:
    """Return what is said about a random job: each rule's status, its findings, and a digest of all verdicts."""
    job = Job(seed)
    by_node = job.verdicts()
    watermark_s = MINUTE_S * job.minutes
    whole = [combine(rule, parts, len(job.nodes)) for rule, parts in by_node.items()]
    if job.ended:
        whole = [final(each, watermark_s) for each in whole]
    started_at = (0.0, -600.0, 0.0, -600.0, None)[seed % 5]
    paid_time = PaidTime("ml.p3.2xlarge" if seed % 4 else None, started_at, watermark_s, len(job.nodes))
    findings = rank_findings(whole, paid_time, job.ledger())
    return {
        "all": digest([_nodes(by_node), [_verdict(each) for each in whole], [_finding(each) for each in findings]]),
        "rules": {each.rule: shown_status(each).name for each in whole},
        "findings": {each.rule: _shown(each) for each in findings},
    }


def _shown(found: RankedFinding) -> str:
    """Return a finding's place on one line; the rest of it is in the digest."""
    loss = "" if found.loss is None else f", claims {found.loss.gpu_seconds:.0f} GPU-s"
    cause = "" if found.explained_by is None else f", by {found.explained_by} {found.explained_share:.3f}"
    return f"{found.finding.severity} {found.score:.2f}{loss}{cause}, {len(found.episodes)} episodes"


def _nodes(by_node: Mapping[str, Mapping[str, RuleOutcome]]) -> list[Any]:
    return [[rule, name, _verdict(each)] for rule, parts in by_node.items() for name, each in parts.items()]


@pytest.mark.parametrize("group", range(GROUPS))
def test_aggregated_verdicts_of_random_jobs_match_the_reviewed(group: int) -> None:
    answers = {f"job {seed}": finding_on(seed) for seed in range(GROUP * group, GROUP * group + GROUP)}
    compare(answers, FOLDER / f"jobs-{group:02}.json")
