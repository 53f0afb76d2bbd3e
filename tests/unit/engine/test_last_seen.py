"""What was found and is over: the sentence, the advice and the loss stay, faded to the time that has passed."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.unit.rules.node_replay import node_minutes, series
from trainguard.core.records import JobRecord, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.streams.rule_runner import LastFinding, RuleRunner, StoredRule
from trainguard.engine.verdicts.episodes import StoredEpisode
from trainguard.engine.verdicts.findings import finding_of
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.pricing.cost import PaidTime
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.rules.low_gpu_utilization.usage import HELD_TIME, IDLE_TIME, QUIET_MEAN, Kind
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult

SETTINGS = {"LowGPUUtilization_window": "20", "LowGPUUtilization_patience": "20"}
PLAN = FAMILIES.plan(JobRecord("job", "arn", "bucket", "", rule_settings=SETTINGS))
FOUND = RuleResult(
    Status.FIRED,
    "it is bad.",
    worst="gpu1",
    advice="Do this.",
    wasted_share=0.6,
    affected_share=0.9,
    confidence=0.2,
    idle_node="idle",
)
NOW = RuleResult(Status.OK, "it is good.", worst="gpu0", measured=3.0, affected_share=0.1)


def episode_of(result: RuleResult, start: float) -> StoredEpisode:
    """Return the episode of a condition that held from ``start`` to 1,540 s."""
    episode = StoredEpisode(start, max(start, 1_540.0))
    episode.take_in("Rule", result, not_before=0.0)
    return episode


def after(values: list[float]) -> RuleOutcome:
    """Run LowGPUUtilization over one point a minute, storing the slots in between, and return its verdict."""
    stored: dict[str, StoredRule] = {}
    rule = LowGPUUtilization()
    for minute in node_minutes(series(values, interval_s=60.0), closed=False):
        runner = RuleRunner([rule], stored, PLAN)
        judge = partial(judged, minute.view)
        runner.run(partial(observed, minute), judge, watermark_s=minute.view.watermark_s or 0.0, interval_s=60.0)
        runner.store()
    return RuleRunner([rule], stored, PLAN).verdicts(judge, interval_s=60.0)[0]


def observed(minute: NodeMinute, rule: LowGPUUtilization, state: Any, parameters: Any) -> None:
    rule.observe(state, minute, parameters)


def judged(view: NodeView, rule: LowGPUUtilization, state: Any, parameters: Any) -> RuleResult:
    return rule.judge(state, view, parameters)


def test_finding_keeps_its_fault_after_it_is_over() -> None:
    verdict = after([95.0] * 60 + [30.0] * 100 + [95.0] * 140)
    finding = finding_of(
        verdict, PaidTime(instance_type="ml.p3.2xlarge", started_at=0.0, watermark_s=18_000.0, nodes=1)
    )

    assert (finding.finding.finding_kind, finding.finding.facts[0].device) == (Kind.UNDER_USED, "gpu0")
    assert (verdict.result.status, verdict.history.is_open, verdict.history.times_fired) == (Status.OK, False, 1)
    assert "gpu0 on algo-1: 95 % of its last 20 samples outside pauses had" in finding.finding.reason
    assert verdict.result.reason.startswith(
        "2023-11-14 23:13 to 2023-11-15 00:54 UTC: gpu0 on algo-1: 95 % of its last 20 samples"
    )
    assert "By 2023-11-15 03:13 UTC: gpu0 on algo-1: over 19 min, outside pauses, the 95th" in verdict.result.reason
    assert finding.finding.advice is not None
    assert finding.finding.episodes[0].start == pytest.approx(verdict.history.episodes[0].start)


def test_ongoing_fault_shows_only_the_current_judgement() -> None:
    result = after([95.0] * 60 + [30.0] * 100).result

    assert result.status is Status.FIRED
    assert result.reason.startswith("gpu0 on algo-1: 95 % of its last 20 samples")


def test_job_without_a_fault_has_no_last_finding() -> None:
    result = after([95.0] * 100).result

    assert (result.kind, result.facts[0].device) == (Kind.FINE, "gpu0")
    assert (result.advice, result.wasted_share) == (None, None)


def test_given_what_was_seen_when_told_now_then_its_share_fades() -> None:
    seen = LastFinding.of(FOUND, at=1_540.0, began_at=1_000.0)
    told = seen.with_result("Rule", NOW, 2_140.0, episode_of(FOUND, 1_540.0))
    ended = seen.with_result("Rule", NOW, 2_140.0, episode_of(FOUND, 1_200.0), closed=True)

    assert told.reason == "1970-01-01 00:25 UTC: it is bad. By 1970-01-01 00:35 UTC: it is good."
    assert ended.reason == "1970-01-01 00:20 to 00:25 UTC: it is bad. At the end: it is good."
    assert (told.status, told.measured, told.worst, told.advice) == (Status.OK, 3.0, "gpu1", "Do this.")
    assert told.wasted_share is None
    assert told.affected_share == pytest.approx(0.45)
    assert (told.confidence, told.idle_node) == (0.2, "idle")


def test_larger_affected_share_of_two_findings_is_kept() -> None:
    told = LastFinding.of(FOUND, at=1_540.0, began_at=1_000.0).with_result(
        "Rule", replace(NOW, affected_share=0.5), 2_140.0, episode_of(FOUND, 1_540.0)
    )

    assert told.affected_share == 0.5


def test_stored_length_of_long_sentences_is_bounded() -> None:
    kept = episode_of(replace(FOUND, reason="r" * 5_000, advice="a" * 5_000), 60.0)

    assert (len(kept.reason), len(kept.advice)) == (600, 600)


def test_recovered_node_reports_the_finding_and_measures_now() -> None:
    result = after([95.0] * 60 + [0.0] * 30 + [95.0] * 3).result

    assert result.kind == Kind.NEARLY_IDLE
    assert result.status is Status.OK
    assert result.measure not in {IDLE_TIME, QUIET_MEAN, HELD_TIME}
