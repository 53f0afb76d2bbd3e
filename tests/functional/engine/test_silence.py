"""How far a job's rows are known, and what its findings come to, when some of its nodes fall silent."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.functional.engine.test_failing_half_way import shifted
from tests.functional.engine.test_telling import STORY, lone
from tests.support.delivery import Network
from tests.support.own_rules import OwnJoin, deploy
from tests.support.small_job import JOB, START, Upload, describe, uploads
from trainguard.core.records import JOB_NODE, RuleRow, Status, StreamKey
from trainguard.core.timestamps import iso_from_epoch
from trainguard.engine.streams.rule_runner import PUBLISH_EVERY_S, PUBLISH_OK_EVERY_S
from trainguard.engine.verdicts.episodes import SILENT, FiringHistory, Liveness
from trainguard.engine.verdicts.verdict import (
    VANISHED_S,
    RuleOutcome,
    combine,
    ends_episode,
    known_until,
    with_liveness,
)
from trainguard.rules.rule_result import RuleResult

RULE = "LowGPUUtilization"
SYSTEM = [each for each in uploads() if "system/incremental" in each.key]
LOW_1 = [each for each in SYSTEM if "algo-1" in each.key]
FINE_1 = [each for each in uploads(low=False) if "system/incremental" in each.key and "algo-1" in each.key]
FINE_2 = [each for each in uploads(low=False) if "system/incremental" in each.key and "algo-2" in each.key]
LONG_2 = [*FINE_2, *shifted(FINE_2, 14, "algo-2"), *shifted(FINE_2, 28, "algo-2")]
STEPS = [each for each in uploads() if "pevents" in each.key]


def verdict(
    *, is_open: bool, fired_at: float | None = None, alerted: int = 0, clear_after_s: float = 60.0
) -> RuleOutcome:
    status = Status.FIRED if is_open else Status.OK
    episode = FiringHistory(is_open=is_open, times_fired=1, fired_at=fired_at, alerted=alerted)
    return RuleOutcome(RULE, RuleResult(status, "so."), episode, clear_after_s)


@pytest.mark.parametrize(
    ("clear_after_s", "silent_s", "stale"),
    [(60.0, VANISHED_S - 1, False), (60.0, VANISHED_S, True), (1_000.0, 999.0, False), (1_000.0, 1_000.0, True)],
)
def test_finding_of_a_late_node_is_stale_after_windows_and_time(
    clear_after_s: float, silent_s: float, stale: bool
) -> None:
    heard = with_liveness(verdict(is_open=True, clear_after_s=clear_after_s), 5_000.0, 5_000.0 + silent_s)
    assert heard.liveness is (Liveness.STALE if stale else Liveness.KNOWN)
    assert heard.history.is_open is not stale
    silent = [fact.value for fact in heard.result.facts if fact.name == SILENT]
    assert silent == ([silent_s] if stale else [])
    assert heard.result.reason.endswith("The node has written nothing for the last 15 min.") is (
        stale and silent_s == VANISHED_S
    )


def test_rule_failed_on_a_silent_node_is_error_and_ends_episode() -> None:
    failed = replace(verdict(is_open=True), result=RuleResult(Status.ERROR, "failed."))
    heard = with_liveness(failed, 0.0, 5_000.0)
    assert (heard.liveness, heard.result.status, heard.history.is_open) == (Liveness.KNOWN, Status.ERROR, False)


def of_job(*nodes: tuple[RuleOutcome, float]) -> RuleOutcome:
    """Return the job's verdict of nodes whose last sample is at that time."""
    ahead = max(watermark_s for _, watermark_s in nodes)
    return combine(RULE, {f"algo-{index}": with_liveness(each, at, ahead) for index, (each, at) in enumerate(nodes, 1)})


@pytest.mark.parametrize(
    ("fired_at", "liveness", "ends"),
    [(1_000.0 + VANISHED_S, Liveness.RESTARTED, True), (999.0 + VANISHED_S, Liveness.KNOWN, False)],
)
def test_other_node_begins_an_episode_only_after_long_silence(fired_at: float, liveness: Liveness, ends: bool) -> None:
    silent, other = verdict(is_open=True, fired_at=900.0), verdict(is_open=True, fired_at=fired_at)
    whole = of_job((silent, 1_000.0), (other, 4_000.0))
    assert (whole.liveness, ends_episode(whole)) == (liveness, ends)


def test_episode_goes_on_with_a_node_that_fired_with_the_silent() -> None:
    silent, second = verdict(is_open=True, fired_at=900.0), verdict(is_open=True, fired_at=1_100.0)
    third = verdict(is_open=True, fired_at=3_900.0)
    whole = of_job((silent, 1_000.0), (second, 4_000.0), (third, 4_000.0))
    assert (whole.liveness, ends_episode(whole)) == (Liveness.KNOWN, False)


def test_earlier_finding_of_a_silent_node_ends_with_the_newest() -> None:
    earlier, newest = verdict(is_open=True, fired_at=900.0), verdict(is_open=False, alerted=1)
    whole = of_job((earlier, 1_000.0), (newest, 4_000.0))
    assert (whole.liveness, ends_episode(whole)) == (Liveness.KNOWN, True)


@pytest.mark.parametrize(
    ("parts", "watermark_s"),
    [
        ([(False, 100.0), (False, 160.0)], 100.0),
        ([(True, 100.0), (False, 160.0)], 100.0),
        ([(False, 100.0), (True, 160.0), (True, 130.0)], 160.0),
        ([(False, 100.0), (False, 100.0 + VANISHED_S)], 100.0 + VANISHED_S),
        ([(True, 100.0), (False, 100.0 + VANISHED_S), (False, 90.0 + VANISHED_S)], 90.0 + VANISHED_S),
    ],
)
def test_finding_reaches_as_far_as_its_nodes_or_else_all_nodes(
    parts: list[tuple[bool, float]], watermark_s: float
) -> None:
    whole = of_job(*((verdict(is_open=is_open, fired_at=50.0), at) for is_open, at in parts))
    assert whole.watermark_s == watermark_s


def test_finding_of_the_job_reaches_as_far_as_its_own_part() -> None:
    whole = replace(verdict(is_open=True), watermark_s=500.0)
    assert known_until({JOB_NODE: whole, "algo-1": replace(verdict(is_open=False), watermark_s=900.0)}) == 500.0
    assert known_until({JOB_NODE: replace(verdict(is_open=False), watermark_s=700.0)}) == 700.0
    assert known_until({"algo-1": verdict(is_open=False)}) is None


def arrive(network: Network, chosen: list[Upload]) -> None:
    """Let objects appear in order of time, with a run of the scheduler after each."""
    for upload in sorted(chosen, key=lambda each: (each.at, each.key)):
        network.put(upload)
        network.announce(upload, max(upload.at, network.now))
        network.run_until(upload.at, batch_s=0.0)
        network.run_scheduler()


def row(network: Network, rule: str = RULE) -> RuleRow:
    """Return the job's row of a rule."""
    return next(each for each in network.world.rows.of_job(JOB) if each.target == rule)


def told(network: Network, rule: str = RULE) -> list[Any]:
    return [each["kind"] for each in network.world.executions.started.values() if each["rule"] == rule]


def ended(kinds: list[str]) -> list[str]:
    return [kind for kind in kinds if kind != "escalation"]


def test_row_time_stands_still_after_the_fired_node_is_silent() -> None:
    network = Network()
    arrive(network, [*LOW_1[:8], *LONG_2[:16]])
    shown, last = row(network), network.node(StreamKey(JOB, "algo-1", "system")).watermark_s
    assert shown.status is Status.FIRED
    assert last == pytest.approx(START + 8 * 60, abs=10.0)
    assert shown.evaluated_through == pytest.approx(last, abs=0.01)


def test_vanished_fired_node_is_not_reported_as_over() -> None:
    network = Network()
    arrive(network, [*LOW_1[:8], *LONG_2])
    assert ended(told(network)) == ["fire"]
    assert network.job().episodes == {}
    assert row(network).status is Status.OK
    assert "The node has written nothing for the last " in row(network).finding.reason
    assert row(network).evaluated_through == pytest.approx(START + 42 * 60, abs=PUBLISH_OK_EVERY_S)


def test_returning_node_with_its_finding_fires_no_second_time() -> None:
    network = Network()
    arrive(network, [*LOW_1[:8], *LONG_2, *shifted(LOW_1, 35)])
    assert ended(told(network)) == ["fire"]
    assert row(network).status is Status.FIRED
    assert row(network).times_fired == 1


def test_fire_is_reported_after_another_node_vanished() -> None:
    network = Network()
    low_2 = shifted(shifted(LOW_1, 0, "algo-2"), 28, "algo-2")
    low_2 = [Upload(each.at, each.key, each.body.replace(b"algo-1", b"algo-2")) for each in low_2]
    arrive(network, [*LOW_1[:8], *LONG_2[:28], *low_2])
    assert ended(told(network)) == ["fire", "fire"]
    fires = [
        each for each in network.world.executions.started.values() if (each["rule"], each["kind"]) == (RULE, "fire")
    ]
    assert [(each["node"], each["episode"]) for each in fires] == [("algo-1", 0), ("algo-2", 1)]
    assert network.job().episodes[RULE] == 1


def test_finding_in_steps_stands_while_steps_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainguard.rules.step_outlier.rule.StepOutlier.clear_s", 300.0)
    network = Network()
    arrive(network, [*STEPS, *LONG_2, *shifted(LOW_1, 0), *shifted(LOW_1, 14), *shifted(LOW_1, 28)])
    assert ended(told(network, "StepOutlier")) == ["fire"]
    assert row(network, "StepOutlier").status is Status.FIRED
    watermark_s = row(network, "StepOutlier").evaluated_through
    assert watermark_s == pytest.approx(network.node(StreamKey(JOB, "algo-2", "framework")).watermark_s, abs=0.01)


def test_row_of_a_rule_without_data_has_no_judged_time() -> None:
    network = Network()
    arrive(network, LOW_1[:12])
    waiting = row(network, "StepOutlier")
    assert (waiting.status, waiting.evaluated_through) == (Status.WAITING_FOR_DATA, None)
    assert row(network).evaluated_through is not None


def test_job_row_time_never_goes_back() -> None:
    network, seen = Network(), []
    chosen = [*LOW_1, *LONG_2, *shifted(LOW_1, 35)]
    for upload in sorted(chosen, key=lambda each: (each.at, each.key)):
        arrive(network, [upload])
        seen.append(row(network).evaluated_through or 0.0)
    assert seen == sorted(seen)


def test_ended_finding_writes_the_job_row_at_once() -> None:
    network = Network()
    for upload in [*LOW_1, *shifted(FINE_1, 14)]:
        arrive(network, [upload])
        if "cleared" in told(network):
            break
    last = list(network.world.executions.started.values())[-1]
    shown = row(network)
    assert (last["kind"], shown.status) == ("cleared", Status.OK)
    assert shown.evaluated_through == pytest.approx(
        network.node(StreamKey(JOB, "algo-1", "system")).watermark_s, abs=0.001
    )


def test_ended_finding_is_in_the_job_row_despite_a_late_node() -> None:
    network = Network()
    late = [Upload(each.at + 480.0, each.key, each.body) for each in LONG_2]
    for upload in sorted([*LOW_1, *shifted(FINE_1, 14), *late], key=lambda each: (each.at, each.key)):
        before = row(network).evaluated_through if "fire" in told(network) else None
        arrive(network, [upload])
        if "cleared" in told(network):
            break
    assert row(network).status is Status.OK
    assert before is not None
    behind = network.node(StreamKey(JOB, "algo-2", "system")).watermark_s
    assert behind is not None
    assert behind < before


def test_grown_finding_writes_the_job_row_at_once() -> None:
    network = lone()
    grown = []
    for upload in STORY:
        before = len(network.world.executions.started)
        arrive(network, [upload])
        new = list(network.world.executions.started.values())[before:]
        if any((each["rule"], each["kind"]) == (RULE, "escalation") for each in new):
            grown.append((row(network).evaluated_through, network.node(StreamKey(JOB, "algo-1", "system")).watermark_s))
    assert grown
    assert all(shown == pytest.approx(watermark_s, abs=0.001) for shown, watermark_s in grown)


def lopsided(upload: Upload) -> Upload:
    """Let the GPUs of algo-1 be half as busy as those of algo-2."""
    lines = [json.loads(line) for line in upload.body.splitlines()]
    for line in lines:
        if line["Dimension"] == "GPUUtilization":
            line["Value"] = 47.0 if "algo-1" in upload.key else 95.0
    return Upload(upload.at, upload.key, "".join(json.dumps(line) + "\n" for line in lines).encode())


def test_job_fire_about_a_late_node_has_a_current_row() -> None:
    network, rule = Network(), "LoadBalancing"
    network.world.training_jobs.set(describe({"trainguard:LoadBalancing_patience": "20"}))
    first = [lopsided(each) for each in SYSTEM]
    later = [
        moved
        for minutes in (14, 28)
        for node in ("algo-1", "algo-2")
        for moved in shifted([each for each in first if node in each.key], minutes, node)
    ]
    arrive(network, [*first, *later])
    (fire,) = [each for each in network.world.executions.started.values() if each["rule"] == rule]
    shown = row(network, rule)
    assert (fire["node"], shown.status, shown.worst) == ("*", Status.FIRED, "algo-1")
    assert shown.evaluated_through is not None
    assert iso_from_epoch(shown.evaluated_through) >= str(fire["firedAt"])


def test_framework_finding_is_known_as_far_as_its_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deploy(monkeypatch, OwnJoin())
    network = Network()
    network.world.training_jobs.set(describe({"trainguard:OwnJoin_threshold": "3"}))
    steps = [each for each in STEPS if each.at < START + 5 * 60]
    arrive(network, [*SYSTEM, *steps])
    network.run_until(network.now + PUBLISH_EVERY_S, batch_s=0.0)
    network.run_scheduler()
    ends = [network.node(StreamKey(JOB, node, "framework")).watermark_s for node in ("algo-1", "algo-2")]
    shown = row(network, "OwnJoin")
    assert shown.status is Status.FIRED
    assert shown.evaluated_through == pytest.approx(max(end for end in ends if end is not None), abs=0.001)
