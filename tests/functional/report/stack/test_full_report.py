"""The full report, made by the machine as it is deployed over stores in memory: what it shows, and what it survives."""

import json
from dataclasses import replace
from typing import Any

import pytest

from infra.constructs.report_machine import definition
from tests.support.faults import Fault
from tests.support.memory import MemoryWorld
from tests.support.report_runs import FOLDER, NOW, ReportRun, finished_world
from tests.support.small_job import BUCKET, JOB, START
from trainguard.core.records import JobRecord
from trainguard.engine.profiler.system_stream import SystemState
from trainguard.stack.report import plan
from trainguard.stack.report.parts import DAY_S, MAX_PARTS, READING_S
from trainguard.state.codec import decode_state, encode_state

PARTS = f"{FOLDER}parts/"


@pytest.fixture(scope="module")
def done() -> MemoryWorld:
    """Return the stores of a job that has ended."""
    return finished_world()


@pytest.fixture
def world(done: MemoryWorld) -> MemoryWorld:
    """Return stores that hold the same, for one test alone."""
    fresh = MemoryWorld()
    for listed in done.objects.list(BUCKET, "", ""):
        fresh.objects.now = listed.last_modified
        fresh.objects.put(BUCKET, listed.key, done.objects.get(BUCKET, listed.key, 10_000_000), "application/json")
    fresh.jobs.register(the_job(done))
    for record in done.nodes.of_job(JOB):
        fresh.nodes.save(replace(record, version=0))
    return fresh


def the_job(world: MemoryWorld) -> JobRecord:
    job = world.jobs.load(JOB)
    assert job is not None
    return job


def keys(world: MemoryWorld, prefix: str = FOLDER) -> list[str]:
    return [listed.key.removeprefix(prefix) for listed in world.objects.list(BUCKET, prefix, "")]


def report(world: MemoryWorld) -> Any:
    return json.loads(world.objects.get(BUCKET, f"{FOLDER}report.json", 100_000_000))


def made(world: MemoryWorld, **given: Any) -> tuple[ReportRun, Any]:
    """Run an execution that must succeed; return it and the report."""
    run = ReportRun(world, **given)
    ending = run.run()
    assert ending.status == "SUCCEEDED", ending.cause
    return run, report(world)


def test_report_of_an_ended_job_has_all_nodes_and_no_parts_left(
    world: MemoryWorld,
) -> None:
    run, document = made(world)
    lines = document["timelines"]
    assert (document["scope"], document["final"]) == ("full", True)
    assert [node["node"] for node in lines["nodes"]] == ["algo-1", "algo-2"]
    assert all(len(node["gpus"]) == 2 for node in lines["nodes"])
    assert {(steps["node"], steps["process"]) for steps in lines["steps"]} == {
        (f"algo-{node}", f"algo-{node}-{pid}") for node in (1, 2) for pid in (70, 71)
    }
    assert lines["left_out"] == []
    assert lines["axis"]["start"] <= START < lines["axis"]["start"] + lines["axis"]["bucket_s"]
    assert {"report.json", "report.html"} <= set(keys(world))
    assert keys(world, PARTS) == []
    assert (run.calls("DigestProfile"), run.calls("BuildReport"), run.calls("DropParts")) == (2, 1, 1)


def test_report_is_the_same_with_short_function_timeouts(world: MemoryWorld) -> None:
    _, whole = made(world)
    run, pieces = made(world, name="report-2", looks=9)
    assert run.calls("DigestProfile") > 4
    assert pieces == whole


def test_report_is_the_same_beyond_the_inline_map_limit(world: MemoryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    run, few = made(world)
    assert run.calls("DigestMany") == 0
    monkeypatch.setattr(plan, "INLINE_ITEMS", 1)
    run, many = made(world, name="report-2")
    assert run.calls("DigestMany") == 1
    assert many == few


def test_node_whose_digest_always_fails_is_named(
    world: MemoryWorld,
) -> None:
    run, document = made(world, lost={"algo-2"})
    assert run.calls("DigestProfile") == 1 + 4
    assert document["timelines"]["left_out"] == ["algo-2 on 2026-11-21: the profile could not be read."]
    first, second = document["timelines"]["nodes"]
    assert any(value is not None for value in first["gpus"][0]["utilization"]["mean"])
    assert second["gpus"] == []


def test_half_failed_digest_shows_its_part_and_names_the_rest(
    world: MemoryWorld,
) -> None:
    run = ReportRun(world, looks=30)
    planned = run.plan({"job": JOB, "run": run.name})
    for item in planned["items"]:
        left = item
        while left["more"] and not (item["node"] == "algo-2" and left["part"] == 2):
            left = run.digest(left)
    run.build({"job": JOB, "run": run.name})
    (sentence,) = report(world)["timelines"]["left_out"]
    assert sentence.startswith("algo-2 on 2026-11-21: system metrics could not be read after 2026-11-21T")


def test_endless_digest_stops_after_a_limit_of_parts(world: MemoryWorld) -> None:
    run, document = made(world, looks=0)
    assert run.calls("DigestProfile") == 2 * MAX_PARTS
    assert document["timelines"]["left_out"] == [
        f"{node} on 2026-11-21: system metrics, and a part of the framework events, could not be read."
        for node in ("algo-1", "algo-2")
    ]


def test_damaged_or_foreign_parts_cost_only_themselves(
    world: MemoryWorld,
) -> None:
    run = ReportRun(world, looks=9)
    for item in run.plan({"job": JOB, "run": run.name})["items"]:
        left = item
        while left["more"]:
            left = run.digest(left)
    parts = keys(world, f"{PARTS}report-1/nodes/")
    world.objects.put(BUCKET, f"{PARTS}report-1/nodes/{parts[1]}", b"damaged", "application/octet-stream")
    other = world.objects.get(BUCKET, f"{PARTS}report-1/nodes/algo-2/2026-11-21.000", 10_000_000)
    world.objects.put(BUCKET, f"{PARTS}report-1/nodes/algo-2/2026-11-21.001", other, "application/octet-stream")
    run.build({"job": JOB, "run": run.name})
    assert [sentence.split(" on ")[0] for sentence in report(world)["timelines"]["left_out"]] == ["algo-1", "algo-2"]


def test_unreadable_object_is_counted_in_the_report(world: MemoryWorld) -> None:
    key = next(key for key in keys(world, "") if "/system/incremental/" in key)
    world.objects.put(BUCKET, key, b"\x1f\x8bbroken", "application/json")
    _, document = made(world)
    assert document["timelines"]["left_out"] == ["1 objects could not be read; the coverage says why."]


@pytest.mark.parametrize("calls", range(0, 140, 7))
def test_report_is_whole_after_a_function_crash_anywhere(world: MemoryWorld, calls: int) -> None:
    _, whole = made(world)
    world.faults.crash_after(calls)
    _, document = made(world, name="report-2", looks=30)
    assert document == whole
    assert keys(world, PARTS) == []


def test_failing_store_reports_state_alone_and_fails_visibly(
    world: MemoryWorld,
) -> None:
    world.faults.schedule("ProfileObjects.folders", Fault.FAIL_BEFORE, times=4)
    run = ReportRun(world)
    ending = run.run()
    assert ending.status == "FAILED"
    assert ending.cause is not None
    assert ending.cause.startswith("PlanReport: PortUnavailableError")
    assert (report(world)["scope"], run.calls("DigestProfile"), run.calls("DropParts")) == ("state", 0, 0)


def test_existing_report_is_not_replaced_by_a_lesser_one(
    world: MemoryWorld,
) -> None:
    _, before = made(world)
    world.faults.schedule("ProfileObjects.folders", Fault.FAIL_BEFORE, times=4)
    run = ReportRun(world, name="report-2", at_end=False)
    assert run.run().status == "FAILED"
    assert run.calls("BuildReport") == 0
    assert report(world) == before


def test_parts_that_cannot_be_joined_give_a_report_of_state(
    world: MemoryWorld,
) -> None:
    run = ReportRun(world, damaged=True)
    ending = run.run()
    assert ending.cause is not None
    assert ending.cause.startswith("BuildReport: ReportPartError")
    assert (report(world)["scope"], report(world)["final"]) == ("state", True)
    assert keys(world, PARTS) == []


def test_parts_of_an_aborted_run_are_deleted_and_new_ones_kept(
    world: MemoryWorld,
) -> None:
    for name, written in (("cut-off", NOW - 3.0 * DAY_S), ("under-way", NOW - 0.9 * DAY_S)):
        world.objects.now = written
        world.objects.put(BUCKET, f"{PARTS}{name}/nodes/algo-1/2026-11-21.000", b"", "application/octet-stream")
    world.objects.now = NOW
    made(world)
    assert keys(world, PARTS) == ["under-way/nodes/algo-1/2026-11-21.000"]


def test_report_after_most_of_a_day_is_built_and_names_the_rest(
    world: MemoryWorld,
) -> None:
    run, document = made(world, late={"algo-2"})
    assert run.calls("DigestProfile") == 2
    assert document["timelines"]["left_out"] == ["algo-2 on 2026-11-21: the profile could not be read."]
    assert document["scope"] == "full"


def test_reading_of_an_item_ends_well_before_the_execution(world: MemoryWorld) -> None:
    (item, _) = ReportRun(world).plan({"job": JOB, "run": "a-run"})["items"]
    assert item["until"] == NOW + READING_S
    assert 0.8 * definition()["TimeoutSeconds"] > READING_S


def test_no_bucket_is_shorter_than_two_samples(
    world: MemoryWorld,
) -> None:
    def bucket_s(interval_s: float) -> float:
        rare = MemoryWorld()
        rare.objects = world.objects
        rare.jobs.register(the_job(world))
        for record in world.nodes.of_job(JOB):
            fresh = replace(record, version=0)
            if record.key.stream == "system" and record.key.node == "algo-2":
                state = decode_state("item", record.codec, record.state, SystemState)
                state.interval_s = interval_s
                fresh = replace(fresh, state=encode_state(state))
            rare.nodes.save(fresh)
        (item, _) = ReportRun(rare).plan({"job": JOB, "run": "a-run"})["items"]
        return float(item["axis"]["bucket_s"])

    assert [bucket_s(interval_s) for interval_s in (5.0, 30.0, 60.0)] == [10.0, 60.0, 120.0]


def test_unknown_job_fails_the_execution_and_is_named() -> None:
    ending = ReportRun(MemoryWorld()).run()
    assert ending.status == "FAILED"
    assert ending.cause is not None
    assert ending.cause.startswith(f"PlanReport: UnknownJobError: job '{JOB}' is not known")


def test_expired_job_fails_and_overwrites_nothing(
    world: MemoryWorld,
) -> None:
    _, before = made(world)
    gone = MemoryWorld()
    gone.objects = world.objects
    gone.jobs.register(replace(the_job(world), last_object_at=float(START)))
    ending = ReportRun(gone, name="report-2").run()
    assert ending.status == "FAILED"
    assert ending.cause is not None
    assert "StateGoneError: job 'small-job' has no state any more" in ending.cause
    assert report(world) == before


def test_job_without_output_is_reported_from_state(
    world: MemoryWorld,
) -> None:
    empty = MemoryWorld()
    empty.jobs.register(replace(the_job(world), last_object_at=None))
    run, document = made(empty)
    assert (document["scope"], run.calls("DigestProfile")) == ("state", 0)


def test_paused_days_without_folders_are_no_items(
    world: MemoryWorld,
) -> None:
    job = replace(the_job(world), ended_at=START + 5.0 * DAY_S)
    later = MemoryWorld()
    later.objects, later.nodes = world.objects, world.nodes
    later.jobs.register(job)
    later.objects.put(BUCKET, f"{JOB}/profiler-output/system/incremental/2026112600/x", b"", "application/json")
    planned = ReportRun(later).plan({"job": JOB, "run": "a-run"})
    days = [START // DAY_S + number for number in (0, 1, 4, 5)]
    assert [item["day"] // DAY_S for item in planned["items"]] == days * 2


def test_axis_covers_training_before_and_after_samples(
    world: MemoryWorld,
) -> None:
    longer = MemoryWorld()
    longer.objects, longer.nodes = world.objects, world.nodes
    longer.jobs.register(replace(the_job(world), started_at=START - 600.0, ended_at=START + 7_200.0))
    axis = ReportRun(longer).plan({"job": JOB, "run": "a-run"})["items"][0]["axis"]
    assert axis["start"] <= START - 600 < axis["start"] + axis["bucket_s"]
    end = axis["start"] + axis["bucket_s"] * axis["buckets"]
    assert end - axis["bucket_s"] <= START + 7_200 < end


def test_each_node_and_day_is_one_item(world: MemoryWorld) -> None:
    planned = ReportRun(world).plan({"job": JOB, "run": "a-run"})
    assert [(item["node"], item["day"], item["more"]) for item in planned["items"]] == [
        (node, START - START % DAY_S, True) for node in ("algo-1", "algo-2")
    ]
    assert planned["count"] == 2
