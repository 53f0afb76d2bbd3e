"""How a job is: healthy only where enough was judged, and no sizeable time is lost without a reason."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.judged_jobs import JOB, START, Node, ended, in_job, judged_job
from tests.support.ledgers import HOUR_S, Part
from tests.support.verdicts import ALWAYS, fired, over, quiet
from trainguard.core.records import JobRecord, Status
from trainguard.engine.diagnosis.case import SIZEABLE_SHARE, Diagnosis
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.ledger.bucket import Bucket
from trainguard.rules.registry import SPECS

LOW = "LowGPUUtilization"
OPEN = Bucket.UNEXPLAINED
QUIET = [quiet(LOW), quiet("CPUBottleneck"), quiet("GPUHealth"), quiet("OverallSystemUsage")]
NO_PROFILE = replace(ended(), instance_count=None)


def diagnosed(*verdicts: RuleOutcome, job: JobRecord = JOB, nodes: Sequence[Node] = (Node(),)) -> Diagnosis:
    return judged_job(*(in_job(each) for each in verdicts), job=job, nodes=nodes).diagnosis


def losing(*parts: Part, **of: object) -> Node:
    """Return a node of ten hours whose GPU's time went into such."""
    return replace(Node(lost=parts), **of)  # type: ignore[arg-type]


@pytest.mark.parametrize("job", [JOB, ended()])
def test_given_enough_judged_and_little_lost_then_healthy(job: JobRecord) -> None:
    found = diagnosed(*QUIET, quiet("StepOutlier", Status.NOT_APPLICABLE), job=job)

    assert (found.level, found.root, found.causes) == ("healthy", None, ())
    assert found.judged.judged == (LOW, "CPUBottleneck", "GPUHealth")
    assert found.busy_share == pytest.approx(0.93)
    assert found.lost_share == pytest.approx(0.07)
    assert found.judged.complete


@pytest.mark.parametrize(
    "silent",
    [
        quiet("GPUHealth", Status.WARMING_UP),
        quiet("GPUHealth", Status.WAITING_FOR_DATA),
        quiet("GPUHealth", Status.DISABLED),
        quiet("CPUBottleneck", Status.ERROR),
        quiet("OverallSystemUsage", Status.ERROR),
        replace(quiet("GPUHealth"), waiting_nodes=("algo-2",)),
    ],
)
def test_unjudged_rule_that_might_find_something_means_unknown(silent: RuleOutcome) -> None:
    found = diagnosed(*[each for each in QUIET if each.rule != silent.rule], silent)

    assert found.level == "unknown"
    assert not found.judged.complete


@pytest.mark.parametrize(
    ("job", "needs_longer", "level"),
    [(ended(), True, "healthy"), (ended(), False, "unknown"), (JOB, True, "unknown")],
)
def test_given_a_job_too_short_for_a_rule_then_it_does_not_veto(job: JobRecord, needs_longer: bool, level: str) -> None:
    """Once it has ended: while it runs, the rule may find something yet."""
    short = quiet("HungJob", Status.WARMING_UP, needs_longer=needs_longer)
    found = diagnosed(*QUIET, short, job=job)

    assert found.level == level
    assert (found.judged.vetoes == ()) is (level == "healthy")


@pytest.mark.parametrize(("lost", "level"), [(0.07, "healthy"), (0.6, "unknown")])
def test_rules_looking_for_lost_time_do_not_veto_without_any(lost: float, level: str) -> None:
    """CPUBottleneck has nothing to find where nothing is lost at times of low use."""
    waiting = quiet("CPUBottleneck", Status.WARMING_UP)
    found = diagnosed(quiet(LOW), quiet("GPUHealth"), waiting, job=ended(), nodes=[losing((0.0, 10.0, {OPEN: lost}))])

    assert found.level == level
    assert found.judged.vetoes == (() if level == "healthy" else ("CPUBottleneck",))


def test_unjudged_rule_over_ruinous_faults_vetoes_without_loss() -> None:
    found = diagnosed(*QUIET, quiet("HungJob", Status.WARMING_UP), job=ended())

    assert (found.level, found.judged.vetoes) == ("unknown", ("HungJob",))


@pytest.mark.parametrize(
    ("nodes", "job"),
    [
        ([Node()], replace(JOB, instance_count=2)),
        ([Node(hours=10.0), Node(name="algo-2", hours=9.0)], replace(ended(), instance_count=2)),
        ([Node(missing_s=0.5 * HOUR_S, gaps=[(START, START + 0.5 * HOUR_S)])], ended()),
    ],
    ids=["silent", "stopped", "no samples"],
)
def test_given_a_gap_then_never_healthy(nodes: list[Node], job: JobRecord) -> None:
    found = diagnosed(*QUIET, job=job, nodes=nodes)

    assert (found.level, len(found.judged.gaps)) == ("unknown", 1)
    assert diagnosed(*QUIET, job=job, nodes=[*nodes[:0], Node(), Node(name="algo-2")]).level == "healthy"


@pytest.mark.parametrize(
    ("counters", "level"),
    [
        ({"unread_parts": 1}, "unknown"),
        ({"devices_not_judged": 1}, "unknown"),
        ({"uncertain_series": 1}, "unknown"),
        ({"runs_not_judged": 1}, "unknown"),
        ({"bad_objects": 2}, "healthy"),
        ({"truncated_objects": 1}, "healthy"),
        ({}, "healthy"),
    ],
)
def test_given_objects_that_could_not_be_read_then_never_healthy(counters: dict[str, int], level: str) -> None:
    """A lost object of samples is known by their times; the file that a killed job was writing is cut."""
    assert diagnosed(*QUIET, nodes=[Node(counters=counters)]).level == level


@pytest.mark.parametrize(("lost", "level"), [(0.49, "healthy"), (0.51, "attention"), (0.9, "attention")])
def test_given_low_time_without_a_reason_then_attention(lost: float, level: str) -> None:
    """Time counts where the GPUs do less than half of what they could."""
    found = diagnosed(*QUIET, nodes=[losing((0.0, 10.0, {OPEN: lost}))])

    assert (found.level, found.root) == (level, None)
    assert found.lacks_reason is (level == "attention")
    assert found.unexplained_share == pytest.approx(lost if lost > 0.5 else 0.0)


@pytest.mark.parametrize(("hours", "level"), [(1.4, "healthy"), (1.6, "attention")])
def test_given_idle_hours_then_a_sizeable_share_needs_a_reason(hours: float, level: str) -> None:
    found = diagnosed(*QUIET, nodes=[losing((2.0, 2.0 + hours, {Bucket.IDLE: 1.0}))])

    assert found.level == level
    assert (found.unexplained_share >= SIZEABLE_SHARE) is (level == "attention")


def test_lost_time_claimed_by_a_finding_has_a_reason() -> None:
    part = (0.0, 10.0, {OPEN: 0.6})
    whole = diagnosed(fired(LOW, ALWAYS), nodes=[losing(part)])
    some = diagnosed(fired(LOW, (0.0, 3.0)), nodes=[losing(part)])

    assert (whole.lacks_reason, some.lacks_reason) == (False, True)
    assert whole.claimed_share == pytest.approx(0.6)
    assert some.unexplained_share == pytest.approx(0.42)


@pytest.mark.parametrize("bucket", [Bucket.HANG, Bucket.BROKEN])
@pytest.mark.parametrize("job", [JOB, ended()])
def test_given_a_hang_or_garbage_then_unhealthy(
    bucket: Bucket, job: JobRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little was lost, however busy the GPUs are, and whatever was not judged."""
    monkeypatch.setitem(SPECS, "HungJob", replace(SPECS["HungJob"], claims={"": (bucket,)}))
    found = diagnosed(fired("HungJob", (9.9, None)), quiet(LOW, Status.WARMING_UP), job=job)

    assert (found.level, found.root is not None and found.root.rule) == ("unhealthy", "HungJob")
    assert found.share_of(bucket) == pytest.approx(0.01)


@pytest.mark.parametrize(("kind", "root"), [("lost", "GPUHealth"), ("xid", "GPUHealth"), ("heat", "HungJob")])
def test_a_broken_gpu_explains_a_hang_and_a_hot_one_does_not(kind: str, root: str) -> None:
    found = diagnosed(fired("HungJob", (6.0, None)), fired("GPUHealth", (5.9, None), kind=kind), job=ended())

    assert found.root is not None
    assert found.root.rule == root
    assert ("HungJob" in {each.rule for each in found.causes}) is (root == "HungJob")


@pytest.mark.parametrize("job", [JOB, ended()])
def test_given_a_risk_alone_then_attention(job: JobRecord) -> None:
    assert diagnosed(*QUIET, fired("GPUMemoryIncrease", affected_share=1.0), job=job).level == "attention"


def test_running_job_with_an_ended_finding_needs_only_attention() -> None:
    past, node = over(LOW, (0.0, 5.0)), losing((0.0, 5.0, {OPEN: 0.9}))

    assert diagnosed(past, nodes=[node]).level == "attention"
    assert diagnosed(past, nodes=[node], job=ended()).level == "unhealthy"


@pytest.mark.parametrize(("share", "level"), [(0.09, "attention"), (0.11, "unhealthy")])
def test_small_loss_needs_attention_only(share: float, level: str) -> None:
    node = losing((0.0, 10.0, {Bucket.CHECKPOINT: share}))

    assert diagnosed(fired("StepOutlier", ALWAYS), nodes=[node], job=ended()).level == level


def test_many_small_faults_count_together() -> None:
    node = losing((0.0, 10.0, {Bucket.CHECKPOINT: 0.06, Bucket.PEERS: 0.06}))
    both = [fired("StepOutlier", ALWAYS), fired("LoadBalancing", ALWAYS)]

    assert diagnosed(*both, nodes=[node], job=ended()).level == "unhealthy"
    assert {diagnosed(each, nodes=[node], job=ended()).level for each in both} == {"attention"}


def test_given_nothing_judged_then_unknown() -> None:
    assert diagnosed().level == "unknown"
    assert diagnosed(quiet("OverallSystemUsage"), quiet("StepOutlier", Status.NOT_APPLICABLE)).level == "unknown"
    assert diagnosed(quiet(LOW, Status.WARMING_UP), nodes=[losing((0.0, 10.0, {OPEN: 0.9}))]).level == "unknown"


def test_given_no_profile_then_losses_must_have_been_judged() -> None:
    learned, other = quiet("training/NotLearning"), quiet("training/ExplodingTensor")

    assert diagnosed(learned, other, job=NO_PROFILE, nodes=()).level == "healthy"
    assert diagnosed(other, job=NO_PROFILE, nodes=()).level == "unknown"
    empty = diagnosed(learned, job=NO_PROFILE, nodes=())
    assert (empty.ledger, empty.busy_share, empty.lost_share, empty.judged.profiled) == ((), None, None, False)


def test_end_of_a_chain_is_the_root_and_the_others_are_causes() -> None:
    node = losing((0.0, 10.0, {OPEN: 0.6, Bucket.CHECKPOINT: 0.03}))
    found = diagnosed(
        fired(LOW, ALWAYS),
        fired("BatchSize", ALWAYS, confidence=0.9),
        fired("IOBottleneck", ALWAYS),
        fired("GPUMemoryIncrease", affected_share=0.1),
        nodes=[node],
    )

    assert [each.rule for each in found.causes] == ["IOBottleneck", "GPUMemoryIncrease"]
    assert found.root is found.causes[0]
    assert found.claimed_share == pytest.approx(0.6)
