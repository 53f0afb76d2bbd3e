"""The three sentences: every kind of job says whether it is healthy, what to change and what that costs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from trainguard.report.verdict import verdict_of

from tests.support.judged_jobs import JOB, Node, ended, judged_job
from tests.support.verdicts import fired, over, quiet
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.finding import Fact
from trainguard.records import JobRecord, Status
from trainguard.report import document
from trainguard.rules.low_gpu_usage import Kind
from trainguard.rules.max_initialization_time import Initialization

BY_TWO = "Nothing wrong was found by 2 rules, but the evaluation"
USED = "its GPU was 31 % busy on average"
BY_LOW = "Nothing wrong was found by LowGPUUtilization, but the evaluation"
QUIET = [quiet("LowGPUUtilization"), quiet("CPUBottleneck"), quiet("OverallSystemUsage")]
BOTTLENECK = [
    fired("CPUBottleneck", wasted=0.4, advice="Prefetch."),
    fired("LowGPUUtilization", wasted=0.68, advice="Look."),
]

IDLE = (
    Fact(name="idle_time", value=1_500.0, unit="s", node="algo-2", threshold=1_200.0),
    Fact(name="idle_since", value=0.0, unit="time"),
    Fact(name="first_sample", value=0.0, unit="time"),
)
LOW = tuple(
    Fact(name=name, value=value, node="algo-1", device="gpu0", start=0.0, end=300.0, threshold=70.0)
    for name, value in {
        "p95_utilization_at_work": 30.0,
        "p5_utilization_at_work": 20.0,
        "samples_at_work": 500,
        "low_time": 900.0,
    }.items()
)


def told(*verdicts: Verdict, job: JobRecord = JOB, nodes: Sequence[Node] = (Node(),)) -> document.Verdict:
    return verdict_of(judged_job(*verdicts, job=job, nodes=nodes))


def test_given_a_cause_and_its_symptom_when_told_then_the_cause_is_to_be_changed_and_their_waste_counts_once() -> None:
    verdict = told(*BOTTLENECK, nodes=[Node(gpus=8)])
    assert verdict == document.Verdict(
        health="This job is not healthy: its 8 GPUs were 31 % busy on average, because the CPU cores could not keep up "
        "with the GPUs (CPUBottleneck, critical).",
        change="Prefetch.",
        cost="Leaving it costs 68 % of the GPU time: USD 26.01 of the USD 38.25 spent so far, and USD 62.42 a day "
        "(USD 2.60 an hour) at this rate.",
        level="unhealthy",
        rule="CPUBottleneck",
        wasted_share=0.68,
        lost=26.01,
    )


def test_given_a_job_that_has_ended_when_told_then_the_cost_is_what_a_repeat_would_waste() -> None:
    verdict = told(*BOTTLENECK, job=ended())
    assert verdict.health.startswith("This job was not healthy: its GPU was 31 % busy on average, because ")
    assert verdict.cost == (
        "It cost 68 % of the GPU time: USD 26.01 of the USD 38.25 spent; a repeat of this job as it is wastes as much "
        "again."
    )


def test_given_findings_in_a_chain_when_told_then_its_end_is_to_be_changed_and_all_of_it_counts_once() -> None:
    verdict = told(
        fired("LowGPUUtilization", wasted=0.7, advice="Look."),
        fired("StepOutlier", wasted=0.6, advice="Make it rarer."),
        fired("CPUBottleneck", wasted=0.3, advice="Prefetch."),
    )
    assert (verdict.rule, verdict.change, verdict.wasted_share) == ("CPUBottleneck", "Prefetch.", 0.7)
    assert "also found" not in verdict.health


def test_given_findings_of_their_own_when_told_then_the_lesser_ones_are_named_and_their_waste_is_not_added() -> None:
    verdict = told(
        fired("LoadBalancing", wasted=0.5, worst="algo-1/gpu3"),
        fired("MaxInitializationTime", wasted=0.04),
        fired("GPUMemoryIncrease", worst="algo-1/gpu0"),
    )
    assert verdict.health == (
        "This job is not healthy: the GPUs did not share the work evenly (LoadBalancing, critical); also found: "
        "GPUMemoryIncrease (medium) and MaxInitializationTime (low)."
    )
    assert verdict.wasted_share == 0.5


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (
            fired("LowGPUUtilization", wasted=0.6, kind=Kind.UNDER_USED, facts=LOW),
            "its GPU was 31 % busy on average, for no reason that the profile",
        ),
        (
            fired("LowGPUUtilization", wasted=0.9, idle_node="idle", kind=Kind.STOPPED, facts=IDLE),
            "its GPU was 31 % busy on average, because the GPUs of algo-2 stopped working (",
        ),
        (
            fired("LowGPUUtilization", wasted=0.9, idle_node="never used", kind=Kind.NEVER_USED, facts=IDLE),
            "because the GPUs of algo-2 were never used (",
        ),
        (fired("IOBottleneck", wasted=0.6), "because the GPUs waited for storage or other I/O ("),
        (fired("BatchSize", wasted=0.6), "because the batches, or the whole job, were too small for the instance ("),
        (fired("LoadBalancing", wasted=0.6, nodes=(2, 2), worst="algo-2"), ": the nodes did not share the work evenly"),
        (fired("LoadBalancing", wasted=0.6, nodes=(2, 2), worst="algo-2/gpu1"), ": the GPUs did not share the work"),
        (fired("StepOutlier", wasted=0.6), ": too much time went into slow steps (StepOutlier, critical)"),
        (fired("MaxInitializationTime", wasted=0.6), ": the first training step came too late ("),
        (fired("Dataloader", wasted=0.6, measured=25.0, threshold=70.0), "too few data loader processes"),
        (fired("Dataloader", wasted=0.6, measured=250.0, threshold=200.0), "too many data loader processes"),
        (over("Dataloader", wasted=0.6), "the number of data loader processes did not fit the cores"),
        (fired("GPUMemoryIncrease", worst="algo-1/gpu0"), ": the memory activity of gpu0 on algo-1 rose ("),
    ],
)
def test_given_a_finding_when_told_then_it_is_in_words(verdict: Verdict, said: str) -> None:
    assert said in told(verdict, job=ended()).health


def test_given_a_use_that_was_not_counted_when_told_then_the_sentence_goes_without() -> None:
    verdict = told(fired("LowGPUUtilization", wasted=0.6), nodes=[Node(use=None)])
    assert verdict.health == ("This job is not healthy: the GPUs were not kept busy (LowGPUUtilization, critical).")


def test_given_only_a_risk_when_told_then_nothing_was_lost_and_the_job_is_not_called_healthy() -> None:
    verdict = told(fired("GPUMemoryIncrease", worst="algo-1/gpu0", advice="Look at it."))
    assert (verdict.level, verdict.wasted_share, verdict.lost) == ("attention", None, None)
    assert verdict.health.startswith("This job is at risk: the memory activity of gpu0 on algo-1 rose")
    assert verdict.cost == (
        "Leaving it has cost nothing yet that the profile shows, but it is a risk; USD 38.25 has been spent so far."
    )
    assert told(fired("GPUMemoryIncrease"), job=ended()).cost == (
        "It cost nothing that the profile shows, but it is a risk; USD 38.25 was spent."
    )


def test_given_a_small_waste_when_told_then_it_is_a_small_fault() -> None:
    verdict = told(fired("StepOutlier", wasted=0.0004))
    assert (verdict.level, verdict.health[:29]) == ("attention", "This job has a small fault: t")
    assert verdict.cost.startswith("Leaving it costs less than 0.1 % of the GPU time: USD 0.02 of the USD 38.25")


def test_given_a_finding_that_is_over_when_told_then_a_running_job_is_let_off_and_one_that_has_ended_is_not() -> None:
    running = told(over("LowGPUUtilization", wasted=0.4))
    assert running.level == "attention"
    assert running.health.startswith("Nothing is seen of it now, but earlier in this job its GPU was 31 % busy")
    assert running.health.endswith("(LowGPUUtilization, high, over now).")
    assert running.cost == (
        "It has cost 40 % of the GPU time: USD 15.30 of the USD 38.25 spent so far; it is over and costs no more."
    )
    assert told(over("LowGPUUtilization", wasted=0.4), job=ended()).level == "unhealthy"


def test_given_a_late_first_step_when_told_then_it_costs_no_more_until_the_next_start() -> None:
    verdict = told(fired("MaxInitializationTime", wasted=0.2, details=Initialization(1_500.0, step_seen=True)))
    assert verdict.cost == (
        "It has cost 20 % of the GPU time: USD 7.65 of the USD 38.25 spent so far; a repeat of this job as it is "
        "wastes as much again."
    )


def test_given_no_step_at_all_when_told_then_all_that_is_paid_until_it_comes_is_wasted() -> None:
    verdict = told(fired("MaxInitializationTime", wasted=0.2, details={"step_seen": False}))
    assert verdict.cost.endswith("and USD 91.80 a day (USD 3.83 an hour) until the first step.")


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (replace(JOB, instance_type=None), "because the job's instance type is not known"),
        (
            replace(JOB, instance_type="ml.unheard-of"),
            "because no price of ml.unheard-of is known (3 sources, us-east-1",
        ),
        (replace(JOB, started_at=None), "because it is not known since when the job has been paid for"),
    ],
)
def test_given_no_price_when_told_then_the_share_stands_alone_and_the_sentence_says_why(
    job: JobRecord, why: str
) -> None:
    verdict = told(*BOTTLENECK, job=job)
    assert verdict.cost.startswith(f"Leaving it costs 68 % of the GPU time: in money that is not known, {why}")
    assert "a day" not in verdict.cost
    assert (verdict.wasted_share, verdict.lost) == (0.68, None)
    assert why in told(*QUIET, job=job).cost


def test_given_no_price_when_told_then_instance_hours_stand_in_for_money() -> None:
    job = replace(JOB, instance_type="ml.p5en.48xlarge", instance_count=2)
    assert told(*BOTTLENECK, job=job).cost.endswith("; 6.80 of 20.00 instance hours.")
    assert told(*QUIET, job=job).cost.startswith("Nothing that was found costs anything")
    assert "what was spent on 20.00 instance hours is not known" in told(*QUIET, job=job).cost


def test_given_a_node_among_several_when_told_then_the_waste_is_of_all_nodes() -> None:
    nodes = [Node(name="algo-1"), Node(name="algo-2")]
    verdict = told(
        fired("LowGPUUtilization", wasted=0.5, nodes=(1, 2)), job=replace(JOB, instance_count=2), nodes=nodes
    )
    assert verdict.wasted_share == 0.25
    assert verdict.health.endswith("(LowGPUUtilization, high, on 1 of 2 nodes).")
    assert "USD 19.12 of the USD 76.50 spent" in verdict.cost


def test_given_a_job_without_gpus_when_told_then_the_waste_is_of_the_paid_time() -> None:
    assert "50 % of the paid time" in told(fired("StepOutlier", wasted=0.5), nodes=[Node(gpus=0, use=None)]).cost


def test_given_rules_that_have_all_judged_when_told_then_the_job_is_healthy_and_nothing_is_to_be_changed() -> None:
    verdict = told(*QUIET, quiet("StepOutlier", Status.NOT_APPLICABLE), nodes=[Node(use=93.0)])
    assert verdict == document.Verdict(
        health="This job is healthy: 2 rules find nothing wrong (StepOutlier does not apply), and its GPU was 93 % "
        "busy on average.",
        change="Nothing needs to be changed.",
        cost="Nothing that was found costs anything; USD 38.25 has been spent so far.",
        level="healthy",
    )
    assert told(*QUIET, job=ended()).health.startswith("This job was healthy: 2 rules found nothing wrong, and its")


def test_given_a_healthy_job_on_too_large_an_instance_when_told_then_the_saving_is_named() -> None:
    said = "algo-1 is under-utilised: 95 % of the points are at or below 60 % of GPU; a smaller instance may do."
    node = quiet("OverallSystemUsage")
    node = replace(node, result=replace(node.result, reason=said, oversized=True))
    both = {"OverallSystemUsage": {"algo-1": node, "algo-2": node}}
    one = {"OverallSystemUsage": {"algo-1": node, "algo-2": quiet("OverallSystemUsage")}}
    assert verdict_of(judged_job(*QUIET, by_node=both)).change == (
        f"Nothing needs to be changed, but it may be had for less: {said}"
    )
    assert verdict_of(judged_job(*QUIET, by_node=one)).change == "Nothing needs to be changed."


@pytest.mark.parametrize(
    ("verdicts", "job", "nodes", "health"),
    [
        (
            [*QUIET, quiet("BatchSize", Status.WARMING_UP), quiet("StepOutlier", Status.WAITING_FOR_DATA)],
            JOB,
            [Node()],
            f"{BY_TWO} is not complete yet: BatchSize and StepOutlier have no verdict yet; {USED}.",
        ),
        (
            [*QUIET, quiet("BatchSize", Status.WARMING_UP)],
            ended(),
            [Node()],
            f"{BY_TWO} is incomplete: BatchSize had too little data for a verdict; its GPU was 31 % busy on average.",
        ),
        (
            [quiet("LowGPUUtilization"), quiet("CPUBottleneck", Status.ERROR), quiet("BatchSize", Status.ERROR)],
            JOB,
            [Node(use=None)],
            f"{BY_LOW} is not complete yet: CPUBottleneck and BatchSize are in error.",
        ),
        (
            [quiet("OverallSystemUsage"), quiet("CPUBottleneck", Status.ERROR)],
            JOB,
            [Node()],
            "No verdict yet: CPUBottleneck is in error.",
        ),
        (
            [quiet("OverallSystemUsage"), quiet("OverallFrameworkMetrics")],
            JOB,
            [Node()],
            "No verdict: no rule applies to this job's data.",
        ),
        (
            [quiet("CPUBottleneck", Status.WAITING_FOR_DATA), quiet("StepOutlier", Status.WARMING_UP)],
            JOB,
            [Node()],
            "No verdict yet: StepOutlier and CPUBottleneck have no verdict yet.",
        ),
        (
            [quiet("CPUBottleneck", Status.WARMING_UP)],
            ended(),
            [Node()],
            "No verdict: CPUBottleneck had too little data for a verdict.",
        ),
        (
            [quiet("LowGPUUtilization"), quiet("CPUBottleneck", Status.DISABLED)],
            ended(),
            [Node(use=None)],
            f"{BY_LOW} is incomplete: 1 rule is disabled.",
        ),
        (
            QUIET,
            replace(JOB, instance_count=3),
            [Node(use=None)],
            f"{BY_TWO} is not complete yet: algo-2 and algo-3 wrote no system metrics.",
        ),
    ],
)
def test_given_something_unjudged_when_told_then_it_is_named_and_health_is_not_claimed(
    verdicts: list[Verdict], job: JobRecord, nodes: list[Node], health: str
) -> None:
    verdict = told(*verdicts, job=job, nodes=nodes)
    assert (verdict.health, verdict.level, verdict.rule) == (health, "unknown", None)


def test_given_a_node_that_warms_up_when_another_was_judged_then_health_is_not_claimed() -> None:
    nodes = {"algo-1": quiet("CPUBottleneck"), "algo-2": quiet("CPUBottleneck", Status.WARMING_UP)}
    verdict = verdict_of(judged_job(*QUIET, by_node={"CPUBottleneck": nodes}))
    assert verdict.level == "unknown"
    assert "CPUBottleneck could not judge every node" in verdict.health


def test_given_a_finding_when_told_then_faults_of_the_judging_are_too_but_not_what_is_still_to_come() -> None:
    others = [quiet("BatchSize", Status.ERROR), quiet("StepOutlier", Status.WARMING_UP)]
    verdict = told(*BOTTLENECK, *others, job=replace(JOB, instance_count=2))
    assert verdict.health.endswith("(CPUBottleneck, critical); BatchSize is in error; algo-2 wrote no system metrics.")


def test_given_nothing_found_when_a_setting_is_wrong_or_a_rule_fails_then_that_is_to_be_changed() -> None:
    wrong = judged_job(*QUIET, quiet("BatchSize", Status.ERROR), settings={"BatchSize_window": "-1"})
    assert verdict_of(wrong).change.startswith("Correct this setting: BatchSize: parameter BatchSize_window is '-1',")
    failed = told(*QUIET, quiet("BatchSize", Status.ERROR))
    assert failed.change == "Report this fault of TrainGuard, BatchSize could not judge: BatchSize is quiet."
    assert "Correct this setting: NoRule" in verdict_of(judged_job(*QUIET, settings={"NoRule_x": "1"})).change


def test_given_no_verdict_when_told_then_nothing_is_advised_and_the_waste_is_not_called_none() -> None:
    waiting = quiet("CPUBottleneck", Status.WAITING_FOR_DATA)
    assert told(waiting).change == "Nothing can be advised yet."
    assert told(waiting).cost == "The waste is unknown; USD 38.25 has been spent so far."
    assert told(waiting, job=ended()).change == "Nothing can be advised: there is no verdict."
    some = told(*QUIET, quiet("BatchSize", Status.WARMING_UP))
    assert some.change == "Nothing needs to be changed, as far as that was judged."
    assert some.cost == (
        "Nothing that was found costs anything, but the evaluation is incomplete; USD 38.25 has been spent so far."
    )


def test_given_gpus_of_low_use_that_nothing_could_judge_when_told_then_the_report_does_not_call_that_fine() -> None:
    young = [quiet("CPUBottleneck"), quiet("LowGPUUtilization", Status.WARMING_UP)]
    assert told(*young).change == (
        "Wait for more data: the GPUs are only 31 % busy, and LowGPUUtilization cannot say yet."
    )
    short = told(*young, job=ended())
    assert short.change == "Find out why the GPUs were only 31 % busy: LowGPUUtilization had too little data to say."
    assert short.cost == (
        "Nothing that was found costs anything, but the evaluation is incomplete; USD 38.25 was spent, with GPUs "
        "that were 31 % busy."
    )
    assert "Nothing needs to be changed" in told(*young, job=ended(), nodes=[Node(use=50.0)]).change


def test_given_a_job_that_has_ended_when_a_rule_had_too_little_data_then_a_finding_does_not_hide_that() -> None:
    verdict = told(*BOTTLENECK, quiet("StepOutlier", Status.WARMING_UP), job=ended())
    assert verdict.health.endswith("(CPUBottleneck, critical); StepOutlier had too little data for a verdict.")


def test_given_a_node_that_stopped_writing_when_nothing_was_found_then_the_job_is_not_called_healthy() -> None:
    nodes = [Node(name="algo-1", hours=10.0), Node(name="algo-2", hours=9.0)]
    verdict = told(*QUIET, job=ended(), nodes=nodes)
    assert verdict.level == "unknown"
    assert "algo-2 stopped writing long before the other nodes" in verdict.health
    assert told(*QUIET, job=ended(), nodes=[nodes[0], Node(name="algo-2", hours=10.0)]).level == "healthy"


def test_given_a_node_without_gpus_when_told_then_the_waste_is_of_the_paid_time() -> None:
    nodes = [Node(name="algo-1", gpus=4), Node(name="algo-2", gpus=0, use=None)]
    assert "50 % of the paid time" in told(fired("LoadBalancing", wasted=1.0), nodes=nodes).cost


def test_given_all_but_a_little_wasted_when_told_then_the_share_is_not_rounded_to_all() -> None:
    assert "costs more than 99.9 % of the GPU time" in told(fired("LowGPUUtilization", wasted=0.9996)).cost
    assert "costs 100 % of the GPU time" in told(fired("LowGPUUtilization", wasted=1.0)).cost


def test_given_gpus_that_do_nothing_when_told_then_rules_that_could_not_say_more_are_not_named() -> None:
    idle = fired("LowGPUUtilization", wasted=1.0, idle_node="never used", kind=Kind.NEVER_USED, facts=IDLE)
    health = told(idle, quiet("BatchSize", Status.WARMING_UP), job=ended()).health
    assert health.endswith("were never used (LowGPUUtilization, critical).")


def test_given_a_job_without_gpus_when_nothing_is_found_then_it_is_said_why_so_few_rules_have_judged() -> None:
    rules = [quiet("StepOutlier"), quiet("BatchSize", Status.NOT_APPLICABLE), quiet("Mine", Status.NOT_APPLICABLE)]
    assert (
        "(2 rules do not apply, as it has no GPUs that wrote metrics)"
        in told(*rules, nodes=[Node(gpus=0, use=None)]).health
    )


def test_given_nodes_with_more_and_fewer_gpus_when_told_then_every_gpu_counts_alike() -> None:
    nodes = [Node(name="algo-1", gpus=8, use=90.0), Node(name="algo-2", gpus=1, use=0.0)]
    assert "its 9 GPUs were 80 % busy on average" in told(*QUIET, nodes=nodes, job=ended()).health


def test_given_a_fifth_of_the_points_left_out_as_pauses_when_told_then_the_first_sentence_says_so() -> None:
    said = "; 20 % of its points were left out as pauses"

    assert said in told(*QUIET, nodes=[Node(paused=200)]).health
    assert said in told(*BOTTLENECK, nodes=[Node(paused=200)]).health
    assert "left out" not in told(*QUIET, nodes=[Node(paused=199)]).health
