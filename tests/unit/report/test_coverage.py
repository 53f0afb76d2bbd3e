"""What was collected and what was missing, as numbers a stream and in words."""

from dataclasses import replace

import pytest

from tests.support.judged_jobs import JOB, START, Node, ended, judged_job
from tests.support.ledgers import HOUR_S
from trainguard.core.records import JobRecord
from trainguard.engine.profiler.framework_session import FrameworkState
from trainguard.report.job.coverage import coverage, data_covered, data_missing, nodes_without_metrics

FIRST, TENTH = int(START), int(START) + 9 * 60


def node(name: str = "algo-1", last: int = TENTH, **counters: int) -> Node:
    return Node(name=name, cursors={"minute": last}, counters=counters)


def of_nodes(count: int, job: JobRecord = JOB) -> JobRecord:
    return replace(job, instance_count=count)


@pytest.mark.parametrize(
    ("given", "share"),
    [
        (node(), 1.0),
        (replace(node(), missing_s=60.0), 0.9),
        (replace(node(bad_objects=3, gaps=2), missing_s=300.0), 0.5),
        (replace(node(), missing_s=1_200.0), 0.0),
        (node(bad_objects=1, gaps=1), 1.0),
        (replace(node(last=TENTH + 1_200), hours=1 / 6), 11 / 30),
        (replace(node(last=TENTH + 60), hours=1 / 6), 1.0),
        (node(last=FIRST), 1.0),
        (node(last=FIRST - 60), 1.0),
        (Node(), None),
        (Node(silent=True, cursors={"minute": TENTH}), None),
    ],
)
def test_stream_share_is_of_the_minutes_from_first_to_last(given: Node, share: float | None) -> None:
    (entry,) = coverage(judged_job(nodes=[given]))
    assert (entry.node, entry.stream, entry.share) == ("algo-1", "system", share)


def test_each_stream_says_how_far_it_goes_and_its_faults() -> None:
    framework = FrameworkState(watermark_s=START + HOUR_S, first_step_us=int(START + 60) * 1_000_000, last_fault="torn")
    judged = judged_job(nodes=[Node(hours=1.0, closed=True, counters={"lines": 5}, framework=framework)])
    system, events = coverage(judged)
    assert (system.first_at, system.evaluated_through) == ("2026-11-21T08:00:00.000Z", "2026-11-21T09:00:00.000Z")
    assert (system.counters, system.closed, system.last_fault) == ({"lines": 5}, True, None)
    assert (events.stream, events.first_at, events.share) == ("framework", "2026-11-21T08:01:00.000Z", None)
    assert events.last_fault == "torn"


def test_sentence_on_nodes_counts_them_and_hides_no_gap() -> None:
    days = replace(node(last=FIRST + 60 * 10_000), hours=10_000 / 60, missing_s=60.0)
    assert data_covered(judged_job(nodes=[replace(days, gpus=8), replace(days, name="algo-2", gpus=8)])) == (
        "System metrics of 2 nodes with 16 GPUs, 99.9 % of their minutes, a point every 0.5 s."
    )
    framework = FrameworkState(watermark_s=START)
    assert data_covered(judged_job(nodes=[replace(node(), gpus=0, framework=framework)])) == (
        "System metrics of 1 node without GPUs, 100 % of their minutes, a point every 0.5 s; framework events of "
        "1 node."
    )
    assert data_covered(judged_job(nodes=[Node(silent=True)])) == "Nothing was collected yet."


@pytest.mark.parametrize(
    ("job", "nodes", "stale"),
    [
        (JOB, [Node()], []),
        (of_nodes(3), [Node()], ["algo-2", "algo-3"]),
        (of_nodes(12), [Node(name=f"algo-{n}") for n in range(1, 12) if n != 10], ["algo-10", "algo-12"]),
        (of_nodes(2), [Node(), Node(name="algo-2", silent=True)], ["algo-2"]),
        (of_nodes(2), [Node(name="host-a"), Node(name="host-b")], []),
        (replace(JOB, instance_count=None), [Node(), Node(name="algo-7", silent=True)], ["algo-7"]),
        (replace(JOB, instance_count=None), [Node()], []),
    ],
)
def test_instances_that_never_wrote_are_named(job: JobRecord, nodes: list[Node], stale: list[str]) -> None:
    assert nodes_without_metrics(judged_job(job=job, nodes=nodes)) == stale


def test_given_everything_when_told_then_nothing_is_missing() -> None:
    harmless = {"lines": 9, "events": 9, "duplicates": 3, "gzip_objects": 1, "unpaired_events": 2}
    assert data_missing(judged_job(nodes=[Node(counters=harmless)])) == []


def test_each_missing_part_has_a_sentence_with_its_nodes() -> None:
    nodes = [
        Node(counters={"gaps": 1, "bad_lines": 1_200}, framework=FrameworkState(watermark_s=START)),
        Node(name="algo-2", counters={"gaps": 10, "late": 1, "degraded_to_whole_percents": 1}),
        Node(name="algo-3", hours=9.5),
    ]
    assert data_missing(judged_job(job=of_nodes(4), nodes=nodes)) == [
        "algo-4 wrote no system metrics so far.",
        "algo-2 and algo-3 wrote no framework events so far, which algo-1 did.",
        "System metrics end before those of the other nodes: algo-3 (30 min).",
        "Not used of system metrics: 1,200 bad lines, all of algo-1.",
        "State of system metrics was shortened to keep it small (degraded to whole percents): 1 of algo-2.",
        "11 minutes of system metrics are missing: 10 of algo-2 and 1 of algo-1.",
        "1 minute of system metrics is left out for being late: 1 of algo-2.",
    ]


def test_unwritten_node_of_an_ended_job_is_not_awaited() -> None:
    assert data_missing(judged_job(job=of_nodes(2, ended())))[0] == "algo-2 wrote no system metrics."


def test_worst_of_128_nodes_with_gaps_are_named_others_counted() -> None:
    nodes = [Node(name=f"algo-{n}", counters={"gaps": n}) for n in range(1, 129)]
    (said,) = data_missing(judged_job(job=of_nodes(128), nodes=nodes))
    assert said.startswith("8,256 minutes of system metrics are missing: 128 of algo-128, 127 of algo-127, ")
    assert said.endswith("122 of algo-122 and 121 more.")


def test_given_a_single_fault_when_told_then_it_is_one() -> None:
    once = judged_job(nodes=[Node(counters={"bad_objects": 1})])
    assert data_missing(once) == ["Not used of system metrics: 1 object that could not be read, 1 of algo-1."]
