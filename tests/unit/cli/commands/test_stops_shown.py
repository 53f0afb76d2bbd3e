"""What `trainguard status` and `trainguard explain` say about stops, and about what comes to nothing."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.cli.seen import Deployed, deployed, firing, job
from trainguard.core.job_policy import AlertPolicy, JobPolicy
from trainguard.core.records import RuleRow, StopRecord

__all__ = ["deployed"]
RULE = "LowGPUUtilization"
REFUSED = StopRecord("refused", "its owner has not opted in", 1_795_248_900.0, "f1", False)
ENTRY = {
    "decision": "refused",
    "why": "its owner has not opted in",
    "at": "2026-11-21T08:15:00.000Z",
    "fire_id": "f1",
    "made": False,
}


def stopped(stop: StopRecord | None, fire_id: str = "f1") -> list[RuleRow]:
    own, report = firing(RULE)
    return [replace(own, fire_id=fire_id, action="Handled.", action_at=1_795_248_905.0, stop=stop), report]


def document(deployed: Deployed, *words: str) -> Any:
    result = deployed.run(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_stop_decision_is_in_both_commands_as_stored(deployed: Deployed) -> None:
    deployed.add(job("one"), stopped(REFUSED))
    deployed.add(job("none"), stopped(None))
    lines = {line["rule"]: line["stop"] for line in document(deployed, "status", "one")["rules"]}
    assert lines == {RULE: ENTRY, "ProfilerReport": None}
    assert document(deployed, "explain", "one", RULE)["stop"] == ENTRY
    assert document(deployed, "explain", "none", RULE)["stop"] is None


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        (REFUSED, "Stop: not stopped (2026-11-21 08:15:00Z, 120 s ago): its owner has not opted in"),
        (replace(REFUSED, decision="stop", made=True), "Stop: stopped (2026-11-21"),
        (replace(REFUSED, decision="stop", made=None), "Stop: to be stopped (2026-11-21"),
        (replace(REFUSED, decision="stop"), "Stop: not stopped, SageMaker did not take the call (2026-11-21"),
        (replace(REFUSED, decision="grace"), "Stop: grace time (2026-11-21"),
        (replace(REFUSED, decision="dry-run"), "Stop: dry run (2026-11-21"),
        (replace(REFUSED, decision="undecided", why=""), "Stop: not stopped, the decision failed (2026-11-21"),
        (replace(REFUSED, fire_id="f0"), "120 s ago, for an earlier fire): its owner has not opted in"),
        (StopRecord("refused", "no"), "Stop: not stopped: no"),
    ],
)
@pytest.mark.parametrize("words", [("status", "one"), ("explain", "one", RULE)])
def test_stop_decision_is_shown_with_its_reason(
    deployed: Deployed, words: tuple[str, ...], stop: StopRecord, said: str
) -> None:
    deployed.add(job("one"), stopped(stop))
    told = deployed.run(*words).stdout
    assert said in told
    assert "None" not in told


def test_missing_decision_shows_nothing_of_a_stop(deployed: Deployed) -> None:
    deployed.add(job("one"), stopped(None))
    assert "Stop:" not in deployed.run("status", "one").stdout + deployed.run("explain", "one", RULE).stdout


@pytest.mark.parametrize(
    ("policy", "staged", "muted"),
    [
        (AlertPolicy(staged=(RULE,)), True, False),
        (AlertPolicy(muted=("all",)), False, True),
        (AlertPolicy(staged=("BatchSize",), muted=("BatchSize",)), False, False),
    ],
)
def test_staged_or_muted_rule_is_marked_in_both_commands(
    deployed: Deployed, policy: AlertPolicy, staged: bool, muted: bool
) -> None:
    deployed.add(job("one", policy=JobPolicy(alerts=policy)), stopped(None))
    found = document(deployed, "status", "one")
    assert (found["staged"], found["muted"]) == (list(policy.staged), list(policy.muted))
    explained = document(deployed, "explain", "one", RULE)
    assert (explained["is_staged"], explained["is_muted"]) == (staged, muted)
    told = deployed.run("explain", "one", RULE).stdout
    assert ("It is staged" in told, "It is muted" in told) == (staged, muted)
    shown = deployed.run("status", "one").stdout
    assert [line.split("\t")[0] for line in shown.splitlines() if line.startswith(("staged\t", "muted\t"))] == [
        name for name, rules in (("staged", policy.staged), ("muted", policy.muted)) if rules
    ]


def test_faults_of_the_explained_rule_are_shown_others_counted(
    deployed: Deployed,
) -> None:
    own, other = f"tag trainguard:{RULE}_window: {RULE}_window is 'x', expected 1", "tag trainguard:muted: it is 'y'"
    elsewhere = {"LossNotDecreasing": "a rule of tensors"}
    policy = JobPolicy(evaluated=False, why="the tag trainguard:evaluate is off")
    deployed.add(job("one", setting_faults=(own, other), rules_elsewhere=elsewhere, policy=policy), stopped(None))
    found = document(deployed, "explain", "one", RULE)
    assert (found["setting_faults"], found["rules_elsewhere"]) == ([own, other], elsewhere)
    assert (found["evaluated"], found["evaluated_because"]) == (False, policy.why)
    told = deployed.run("explain", "one", RULE).stdout
    assert own in told
    assert other not in told
    assert "1 more: `trainguard status` of the job shows them." in told
    assert "LossNotDecreasing\ta rule of tensors" in told
    assert f"not evaluated\t{policy.why}" in told
    assert "2 not of this rule" in deployed.run("explain", "one", "BatchSize").stdout


def test_fault_of_an_unusable_job_file_is_among_the_settings(
    deployed: Deployed,
) -> None:
    deployed.add(job("one", file_fault="job file 'one/job.json' cannot be used"), stopped(None))
    assert document(deployed, "status", "one")["setting_faults"] == ["job file 'one/job.json' cannot be used"]
    assert "job.json" in deployed.run("status", "one").stdout
