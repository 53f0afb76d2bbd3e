"""The three sentences of a job: every number in them is of the ledger, of a finding's facts or of the bill."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judged_jobs import JOB, START, Node, ended, in_job, judged_job
from tests.support.ledgers import HOUR_S, Part
from tests.support.verdicts import ALWAYS, fired, held, over, quiet
from trainguard.core.records import JobRecord, Status
from trainguard.core.units import show_share
from trainguard.engine.diagnosis.text import Sentences, counted_rules, sentences_of
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.ledger.bucket import Bucket
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.rules.change import ChangeCode
from trainguard.rules.registry import RULE_NAMES

LOW = "LowGPUUtilization"
OPEN = Bucket.UNEXPLAINED
QUIET = [quiet(LOW), quiet("CPUBottleneck"), quiet("OverallSystemUsage")]
WAITED = "the GPUs waited for batches"
BOTTLENECK = [
    fired("CPUBottleneck", ALWAYS, advice="Prefetch.", clause=WAITED),
    fired(LOW, ALWAYS, advice="Look.", clause="the GPUs were under-used"),
]


def judged(
    *verdicts: RuleOutcome, job: JobRecord = JOB, nodes: Sequence[Node] = (Node(),), **more: object
) -> EvaluatedJob:
    return judged_job(*(in_job(each) for each in verdicts), job=job, nodes=nodes, **more)  # type: ignore[arg-type]


def told(*verdicts: RuleOutcome, **of: object) -> Sentences:
    found = judged(*verdicts, **of)  # type: ignore[arg-type]
    return sentences_of(found, found.diagnosis)


def losing(*parts: Part, gpus: int = 1) -> list[Node]:
    return [Node(gpus=gpus, lost=parts)]


WAITING = losing((0.0, 10.0, {Bucket.DATA: 0.68}), gpus=8)


def test_cause_of_a_symptom_is_named_and_to_be_changed() -> None:
    assert told(*BOTTLENECK, nodes=WAITING) == Sentences(
        health="This job is not healthy: its 8 GPUs worked 32 % of the paid time, mostly because the GPUs waited for "
        "batches (CPUBottleneck, critical, since 2026-11-21 08:00 UTC).",
        change="Prefetch.",
        cost="Of the paid time 68 % was no work: waiting for batches 68 %; CPUBottleneck accounts for 68 %; that is "
        "USD 26.01 of the USD 38.25 paid so far; it goes on to lose USD 62.42 a day.",
        code=ChangeCode.FEED_FASTER,
    )


def test_given_a_job_that_has_ended_then_all_is_in_the_past() -> None:
    words = told(*BOTTLENECK, job=ended(), nodes=WAITING)

    assert words.health.startswith("This job was not healthy: its 8 GPUs worked 32 %")
    assert words.cost.endswith("that is USD 26.01 of the USD 38.25 paid.")


@pytest.mark.parametrize(("idle", "said"), [(0.3, "mostly because"), (0.31, "in part because")])
def test_root_claiming_half_of_the_lost_time_is_called_mostly(idle: float, said: str) -> None:
    nodes = losing((0.0, 10.0, {Bucket.DATA: 0.3, Bucket.TAIL: idle}))

    assert f", {said} {WAITED} (" in told(BOTTLENECK[0], nodes=nodes).health


def test_given_findings_of_their_own_then_the_others_are_named() -> None:
    nodes = losing((0.0, 10.0, {Bucket.PEERS: 0.5, Bucket.CHECKPOINT: 0.05}))
    words = told(
        fired("LoadBalancing", ALWAYS, clause="the GPUs shared the work unevenly"),
        fired("StepOutlier", ALWAYS, clause="steps were slow"),
        fired("GPUMemoryIncrease", clause="memory grew"),
        nodes=nodes,
    )

    assert words.health == (
        "This job is not healthy: its GPU worked 45 % of the paid time, mostly because the GPUs shared the work "
        "unevenly (LoadBalancing, critical, since 2026-11-21 08:00 UTC); besides, memory grew (GPUMemoryIncrease, "
        "medium) and steps were slow (StepOutlier, low)."
    )


def test_findings_beyond_the_named_ones_are_counted() -> None:
    risks = [fired(rule) for rule in ("GPUMemoryIncrease", "GPUHealth", "Straggler", "MaxInitializationTime", "Mine")]

    assert told(*risks).health.endswith("; 1 finding more.")


def test_given_a_rule_without_a_clause_then_it_is_named() -> None:
    assert "GPUMemoryIncrease fired (GPUMemoryIncrease, medium)" in told(fired("GPUMemoryIncrease")).health


def test_given_a_risk_then_the_job_is_at_risk_and_loses_nothing() -> None:
    words = told(fired("GPUMemoryIncrease", clause="memory grew", advice="Look at it."))

    assert words.health == "This job is at risk: memory grew (GPUMemoryIncrease, medium)."
    assert (words.change, "accounts for" in words.cost, "a day" in words.cost) == ("Look at it.", False, False)


def test_given_a_small_loss_then_it_is_a_small_fault() -> None:
    small = losing((0.0, 10.0, {Bucket.CHECKPOINT: 0.004}))

    assert told(fired("StepOutlier", ALWAYS), nodes=small).health.startswith("This job has a small fault: its GPU")
    assert told(fired("StepOutlier", ALWAYS), nodes=small, job=ended()).health.startswith("This job had a small fault:")


def test_ended_finding_is_mild_in_the_text_of_a_running_job() -> None:
    nodes = losing((0.0, 5.0, {OPEN: 0.8}))
    running = told(over(LOW, (0.0, 5.0), clause="the GPUs were idle"), nodes=nodes)

    assert running.health == (
        "Nothing is wrong now, but earlier in this job its GPU worked 60 % of the paid time, mostly because the GPUs "
        "were idle (LowGPUUtilization, high, over now, 2026-11-21 08:00 to 13:00 UTC)."
    )
    assert "a day" not in running.cost
    assert "over before the end" in told(over(LOW, (0.0, 5.0)), nodes=nodes, job=ended()).health


def test_given_one_of_several_nodes_then_the_finding_says_where() -> None:
    nodes = [Node(), Node(name="algo-2", lost=[(0.0, 10.0, {OPEN: 0.9})])]
    found = replace(fired(LOW, nodes=(1, 2)), merged=held(ALWAYS, nodes=("algo-2",)))
    words = told(found, nodes=nodes, job=replace(JOB, instance_count=2))

    assert "(LowGPUUtilization, high, on 1 of 2 nodes, since 2026-11-21 08:00 UTC on algo-2)" in words.health
    assert "USD 37.10 of the USD 76.50 paid so far" in words.cost


def test_given_a_healthy_job_then_nothing_is_to_be_changed() -> None:
    assert told(*QUIET) == Sentences(
        health="This job is healthy: 2 rules found nothing wrong, and its GPU worked 93 % of the paid time.",
        change="Nothing needs to be changed.",
        cost="Of the paid time 7 % was no work: not explained 7 %; that is USD 2.68 of the USD 38.25 paid so far.",
        code=ChangeCode.NOTHING,
    )
    assert told(*QUIET, job=ended()).health.startswith("This job was healthy: 2 rules found nothing wrong, and its")


def test_healthy_job_on_too_large_an_instance_names_the_saving() -> None:
    said = "algo-1 is under-utilised: a smaller instance may do."
    usage = quiet("OverallSystemUsage")
    usage = replace(usage, result=replace(usage.result, reason=said, oversized=True))

    assert told(*QUIET[:2], usage).change == f"Nothing needs to be changed, but it can cost less: {said}"


def test_given_lost_time_without_a_reason_then_it_is_to_be_found() -> None:
    idle = told(*QUIET, nodes=losing((2.0, 6.0, {Bucket.IDLE: 1.0})))
    busy = told(*QUIET, nodes=losing((0.0, 10.0, {OPEN: 0.8})))

    assert idle.health == (
        "This job is idle in part without a known reason: 2 rules found nothing wrong; its GPU worked 60 % of the paid "
        "time; for 40 % of the paid time no rule says why the GPUs did little."
    )
    assert idle.change.startswith("Find out what the job did while its GPUs were idle")
    assert busy.change.startswith("Record a kernel trace of a few steps")


@pytest.mark.parametrize(
    ("verdicts", "job", "health"),
    [
        (
            [*QUIET, quiet("GPUHealth", Status.WARMING_UP)],
            JOB,
            (
                "Nothing was found by 2 of 3 rules; its GPU worked 93 % of the paid time; "
                "not judged: GPUHealth (not enough data yet)."
            ),
        ),
        (
            [*QUIET, quiet("GPUHealth", Status.WARMING_UP)],
            ended(),
            (
                "Nothing was found by 2 of 3 rules; its GPU worked 93 % of the paid time; "
                "not judged: GPUHealth (too little data)."
            ),
        ),
        (
            [quiet(LOW), quiet("CPUBottleneck", Status.ERROR), quiet("BatchSize", Status.ERROR)],
            JOB,
            (
                "Nothing was found by 1 of 3 rules; its GPU worked 93 % of the paid time; "
                "in error: CPUBottleneck and BatchSize."
            ),
        ),
        (
            [quiet("OverallSystemUsage")],
            ended(),
            "No verdict: its GPU worked 93 % of the paid time; no rule applies to the data of this job.",
        ),
        (
            [quiet("GPUHealth", Status.WAITING_FOR_DATA)],
            JOB,
            "No verdict yet: its GPU worked 93 % of the paid time; not judged: GPUHealth (not enough data yet).",
        ),
        (
            [quiet("CPUBottleneck", Status.WARMING_UP), quiet("GPUHealth", Status.DISABLED)],
            ended(),
            (
                "No verdict: its GPU worked 93 % of the paid time; not judged: CPUBottleneck (too little data); "
                "disabled: GPUHealth."
            ),
        ),
        (
            QUIET,
            replace(JOB, instance_count=3),
            (
                "Nothing was found by 2 of 2 rules; its GPU worked 93 % of the paid time; "
                "algo-2 wrote no system metrics; algo-3 wrote no system metrics."
            ),
        ),
    ],
)
def test_unjudged_rule_is_named_and_health_is_not_claimed(
    verdicts: list[RuleOutcome], job: JobRecord, health: str
) -> None:
    assert told(*verdicts, job=job).health == health


@pytest.mark.parametrize(
    ("bucket", "share", "named", "change"),
    [
        (Bucket.START_UP, 0.9, "90 % of it was start-up; not judged", "before its GPUs first worked"),
        (Bucket.TAIL, 0.8, "80 % of it was after the last work; not judged", "ending after its last work"),
        (Bucket.START_UP, 0.14, "86 % of the paid time; not judged", "as the work of the GPUs shows"),
    ],
)
def test_job_without_verdict_names_its_largest_loss(bucket: Bucket, share: float, named: str, change: str) -> None:
    young = quiet("GPUHealth", Status.WARMING_UP)
    words = told(young, nodes=losing((0.0, 10.0, {bucket: share})), job=ended())

    assert named in words.health
    assert change in words.change


def test_gaps_and_unread_objects_are_shown_beside_a_finding() -> None:
    node = Node(lost=WAITING[0].lost, missing_s=HOUR_S, gaps=[(START, START + HOUR_S)], counters={"unread_parts": 2})
    health = told(*BOTTLENECK, nodes=[node]).health

    assert health.endswith(
        "; algo-1 has no samples for 60 min of its 10 h (2026-11-21 08:00 to 09:00 UTC); 2 parts could not be read."
    )


@pytest.mark.parametrize(("unseen", "named"), [(0.1, False), (0.6, True)])
def test_work_is_told_with_the_time_that_nobody_sampled(unseen: float, named: bool) -> None:
    """A GPU that worked for 35 % of the paid time, of which 60 % has no samples, was busy all along."""
    node = Node(lost=[(0.0, 10.0, {Bucket.NO_SAMPLES: unseen, Bucket.IDLE: 0.05})])
    health = told(*QUIET, nodes=[node]).health

    assert f"worked {95 - 100 * unseen:.0f} % of the paid time" in health
    assert (f"{100 * unseen:.0f} % of which has no samples" in health) is named


def test_ended_job_names_a_rule_that_judged_too_little() -> None:
    young = quiet("GPUHealth", Status.WARMING_UP)

    assert told(*BOTTLENECK, young, nodes=WAITING, job=ended()).health.endswith(
        "not judged: GPUHealth (too little data)."
    )
    assert "not judged" not in told(*BOTTLENECK, young, nodes=WAITING).health
    idle = fired(LOW, ALWAYS, idle_node="never used")
    assert "not judged" not in told(idle, young, nodes=losing((0.0, 10.0, {Bucket.IDLE: 1.0})), job=ended()).health


def test_faulty_setting_or_failed_rule_is_to_be_changed() -> None:
    failed = [*QUIET, quiet("BatchSize", Status.ERROR)]

    assert told(*failed, settings={"BatchSize_window": "-1"}).change.startswith(
        "Correct this setting: BatchSize: parameter BatchSize_window is '-1',"
    )
    assert told(*failed).change == "Report this fault of TrainGuard, BatchSize could not judge: BatchSize is quiet."
    assert "Correct this setting: NoRule" in told(*QUIET, settings={"NoRule_x": "1"}).change


def test_given_no_verdict_then_nothing_is_advised() -> None:
    waiting = quiet("GPUHealth", Status.WAITING_FOR_DATA)

    assert told(waiting).change == "Nothing can be advised yet."
    assert told(waiting, job=ended()).change == (
        "Collect what was not judged or not read; nothing needs to be changed, as far as the work of the GPUs shows."
    )
    lost = losing((0.0, 10.0, {Bucket.CHECKPOINT: 0.4}))
    assert told(waiting, nodes=lost, job=ended()).change == (
        "Collect GPU samples or losses: without them there is no verdict."
    )
    assert told(*QUIET, replace(waiting, rule="GPUHealth")).change == (
        "Collect what was not judged or not read; nothing needs to be changed, as far as that was judged."
    )
    low = told(quiet(LOW), quiet("CPUBottleneck", Status.WARMING_UP), nodes=losing((0.0, 10.0, {OPEN: 0.8})))
    assert low.change == "Wait for more data: CPUBottleneck cannot say yet why the GPUs do little."


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (replace(JOB, instance_type=None), "because the job's instance type is not known"),
        (replace(JOB, instance_type="ml.unheard-of"), "because no price of ml.unheard-of is known (3 sources, us-east"),
        (replace(JOB, started_at=None), "because it is not known since when the job has been paid for"),
    ],
)
def test_missing_price_shows_the_share_alone_and_the_reason(job: JobRecord, why: str) -> None:
    cost = told(*BOTTLENECK, job=job, nodes=WAITING).cost

    assert cost.startswith("Of the paid time 68 % was no work")
    assert why in cost
    assert "USD" not in cost


def test_loss_is_unknown_without_sampled_gpus() -> None:
    cpu = [Node(gpus=0, use=None)]

    assert told(quiet("StepOutlier"), nodes=cpu).cost == (
        "No GPU was sampled, so what the paid time went into is unknown; USD 38.25 has been paid so far."
    )
    without = told(quiet("training/NotLearning"), job=replace(ended(), instance_count=None), nodes=())
    assert without.health == "Training was healthy: 1 rule found nothing wrong."
    assert without.cost.startswith("No GPU was sampled, so what the paid time went into is unknown; what was paid is")
    unknown = told(quiet("training/ExplodingTensor"), job=replace(ended(), instance_count=None), nodes=())
    assert unknown.health == (
        "Nothing was found by 1 of 1 rule; whether the model learns was not judged, and no GPU was sampled."
    )


def test_almost_total_loss_is_not_rounded_to_all() -> None:
    almost = told(fired(LOW, ALWAYS), nodes=losing((0.0, 10.0, {OPEN: 0.9996}))).cost

    assert almost.startswith("Of the paid time more than 99.9 % was no work")
    assert told(fired(LOW, ALWAYS), nodes=losing((0.0, 10.0, {OPEN: 1.0}))).cost.startswith("Of the paid time 100 %")


def test_given_rules_when_counted_then_each_is_in_one_place() -> None:
    found = judged(*QUIET, quiet("BatchSize", Status.ERROR), quiet("GPUHealth", Status.WARMING_UP))

    assert counted_rules(found, found.diagnosis.judged) == (
        "5 rules: 2 judged, 1 without a verdict, 1 inform only, 1 in error (BatchSize)."
    )


PERCENT = re.compile(r"(?:more than |less than )?\d[\d.,]* %")
buckets = st.dictionaries(st.sampled_from([*Bucket][4:]), st.floats(0.0, 0.3), max_size=3)
parts = st.builds(lambda begin, length, lost: (begin, begin + length, lost), st.floats(0, 8), st.floats(0, 4), buckets)
hours = st.builds(
    lambda begin, length: (begin, length and begin + length), st.floats(0, 9), st.none() | st.floats(0, 3)
)


@given(
    st.lists(parts, max_size=3),
    st.lists(st.tuples(st.sampled_from(RULE_NAMES), hours, st.booleans()), max_size=4, unique_by=lambda each: each[0]),
    st.booleans(),
)
def test_every_share_in_a_sentence_is_from_the_diagnosis(
    lost: list[Part], found: list[tuple[str, tuple[float, float | None], bool]], has_ended: bool
) -> None:
    verdicts = [(over if past else fired)(rule, when) for rule, when, past in found]
    job = judged(*verdicts, job=ended() if has_ended else JOB, nodes=losing(*lost))
    of, words = job.diagnosis, sentences_of(job, job.diagnosis)
    known = {entry.share for entry in of.ledger} | {of.busy_share, of.lost_share, of.unexplained_share}
    root = None if of.root is None or of.root.loss is None else of.root.loss.share
    shown = {show_share(share) for share in (*known, root) if share is not None}

    assert set(PERCENT.findall(f"{words.health} {words.cost}")) <= shown
    assert sum(entry.share for entry in of.ledger) == pytest.approx(1.0)
    assert ("mostly because" in words.health) is bool(root and root >= 0.5 * (of.lost_share or 0.0))
    assert (of.level == "healthy") is words.health.startswith(("This job is healthy", "This job was healthy"))
