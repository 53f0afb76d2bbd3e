"""Rules over captures: what they say of a verdict, and that they are the rules that see traces."""

import json

import pytest
from msgspec.structs import replace

from trainguard.engine.verdicts.severity import severity_of
from trainguard.errors import TelemetryFormatError
from trainguard.finding import Severity
from trainguard.kernels.captures.verdict import (
    MOST_BYTES,
    CaptureVerdict,
    Proof,
    RuleVerdict,
    decode_verdict,
    encode_verdict,
)
from trainguard.kernels.findings.rules import RULES
from trainguard.records import Status
from trainguard.rules.kernels.capture_rule import score_of
from trainguard.rules.kernels.names import NAMES
from trainguard.rules.kernels.registry import KERNEL_RULES

FOUND = RuleVerdict(
    rule="kernels/GpuGap",
    severity=Severity.MEDIUM,
    summary="The GPU is idle for 600.0 ms at a stretch.",
    value=600.0,
    threshold=500.0,
    gain_ns_per_step=2_000_000,
    gain_share=0.2,
    recommendation="Fix what the host did there.",
    sure=2,
    unsure=0,
    ranks=["rank 1", "rank 3"],
    evidence=[Proof(what="gap", duration_ns=600_000_000)],
)
VERDICT = CaptureVerdict(
    capture="20261121T081000Z-0123abcd",
    version="v",
    run="run",
    folder="f/",
    at=1_795_248_600.0,
    traces=4,
    judged=4,
    unread=0,
    unread_why={},
    world_size=4,
    steps=5,
    gpus=["NVIDIA A100"],
    busy_share=0.6,
    step_ns=10_000_000,
    rules=[FOUND],
    notes=[],
)
RULE = next(rule for rule in KERNEL_RULES if rule.name == FOUND.rule)


def test_given_the_rules_of_a_job_when_compared_with_those_over_traces_then_they_are_the_same() -> None:
    named = {f"kernels/{''.join(part.capitalize() for part in rule.__name__.split('_'))}" for rule in RULES}
    renamed = {"kernels/StepOutlier": "kernels/TraceStepOutlier"}
    over_traces = {renamed.get(name, name) for name in named}
    assert over_traces | {"kernels/LateRank", "kernels/SlowRank"} == set(NAMES)
    assert tuple(rule.name for rule in KERNEL_RULES) == NAMES


def test_given_a_finding_on_some_ranks_when_judged_then_the_rule_fires_and_says_where_and_how_much() -> None:
    result = RULE.judge(VERDICT)
    assert result.status is Status.FIRED
    assert result.reason == f"On 2 of 4 ranks (rank 1, rank 3), at worst: {FOUND.summary}"
    assert result.advice == f"{FOUND.recommendation} It explains 20.0 % of the time, 2.000 ms a step."
    assert (result.measured, result.threshold, result.worst) == (600.0, 500.0, "rank 1")
    assert result.wasted_share is None
    assert RULE.clear_after_s(RULE.parameters_type(), 0.5) == 0.0


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (None, Status.WAITING_FOR_DATA),
        (replace(VERDICT, rules=[]), Status.OK),
        (replace(VERDICT, rules=[], judged=0, steps=2), Status.WARMING_UP),
        (replace(VERDICT, rules=[replace(FOUND, sure=0, unsure=2)]), Status.WARMING_UP),
        (replace(VERDICT, rules=[replace(FOUND, sure=1, unsure=3)]), Status.FIRED),
    ],
    ids=["no capture", "not there", "not judged", "low confidence", "sure on one rank"],
)
def test_given_a_verdict_when_judged_then_only_what_is_sure_fires(
    verdict: CaptureVerdict | None, status: Status
) -> None:
    assert RULE.judge(verdict).status is status


@pytest.mark.parametrize("name", ["kernels/QueueFull", "kernels/TraceQuality"])
def test_given_a_rule_that_informs_when_its_condition_holds_then_it_does_not_fire(name: str) -> None:
    rule = next(each for each in KERNEL_RULES if each.name == name)
    result = rule.judge(replace(VERDICT, rules=[replace(FOUND, rule=name)]))
    assert (result.status, result.reason) == (Status.OK, FOUND.summary)


@pytest.mark.parametrize("severity", list(Severity))
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, 7.0])
def test_given_a_severity_when_scored_then_the_score_is_of_its_level_whatever_can_be_won(
    severity: Severity, share: float
) -> None:
    assert severity_of(score_of(replace(FOUND, severity=severity, gain_share=share))) is severity


def test_given_a_verdict_when_judged_then_rows_have_its_framework_and_traces_and_what_a_finding_can_win() -> None:
    made_with = replace(VERDICT, framework="jax")
    assert RULE.judge(made_with).about == {"framework": "jax", "traces": 4, "gain_share": 0.2}
    unsure = replace(made_with, rules=[replace(FOUND, sure=0, unsure=2)])
    assert (
        RULE.judge(unsure).about == RULE.judge(replace(made_with, rules=[])).about == {"framework": "jax", "traces": 4}
    )


def test_given_a_verdict_when_encoded_then_it_is_read_back() -> None:
    assert decode_verdict("key", encode_verdict(VERDICT)) == VERDICT


def test_given_a_verdict_of_an_earlier_version_when_read_then_its_framework_is_not_known() -> None:
    earlier = json.loads(encode_verdict(VERDICT))
    del earlier["framework"]
    assert RULE.judge(decode_verdict("key", json.dumps(earlier).encode())).about == {"traces": 4, "gain_share": 0.2}


def test_given_a_verdict_with_too_much_to_say_when_encoded_then_evidence_goes_first_and_then_the_last_rules() -> None:
    long = replace(FOUND, summary="x" * 400, evidence=[Proof(what="y" * 120, duration_ns=1)] * 3)
    without_evidence = decode_verdict("key", encode_verdict(replace(VERDICT, rules=[long] * 64)))
    assert len(without_evidence.rules) == 64
    assert not any(rule.evidence for rule in without_evidence.rules)
    huge = replace(VERDICT, rules=[replace(long, recommendation="z" * 2_000)] * 64)
    body = encode_verdict(huge)
    assert len(body) <= MOST_BYTES
    assert 0 < len(decode_verdict("key", body).rules) < 64


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"\xff", b" " * (MOST_BYTES + 1), json.dumps({"format": 2}).encode()],
    ids=["empty", "list", "no fields", "no text", "too large", "other version"],
)
def test_given_a_hostile_verdict_when_read_then_it_is_refused_by_name(body: bytes) -> None:
    with pytest.raises(TelemetryFormatError, match="key"):
        decode_verdict("key", body)
