"""One engine: the deployed evaluator, object by object and tick by tick, and the local one say the same of a job."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from demo.recording import Recording
from tests.support import small_job
from tests.support.delivery import Network
from tests.support.late_events import told_by_event
from tests.support.small_job import JOB, START, Upload, describe
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord, JobStatus, StreamRecord
from trainguard.engine.diagnosis.case import case_of
from trainguard.engine.installed import FAMILIES
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.formats.profile.keys import SystemKey, parse_key, system_key
from trainguard.local.engine import ProfileEvaluation, evaluate_profile
from trainguard.local.pool import WorkerPool
from trainguard.local.profile import read_profile
from trainguard.local.sources import open_folder
from trainguard.report.document import Report
from trainguard.report.job.build import build_report

# The recorded jobs with a fault.
RECORDINGS = sorted((Path(__file__).parents[2] / "events" / "jobs").glob("*_*.npz"))
# It takes as long as all others.
LONGEST = "slow_data_loader"


def recorded(path: Path) -> list[Upload]:
    """Return a recorded job's objects as they are uploaded."""
    objects = Recording.load(path).objects(JOB, start=START)
    return [Upload(item.appears_at, item.key, item.body) for item in objects]


def delivered(uploads: list[Upload], tags: dict[str, str]) -> Network:
    """Deliver a job as it was uploaded, with a scheduler run every minute and one after its last object."""
    network = Network()
    nodes = {parsed.node for each in uploads if isinstance(parsed := parse_key(each.key), SystemKey)}
    description = replace(describe(EACH_MINUTE | tags), instance_count=len(nodes))
    network.world.training_jobs.set(description)
    next_tick = float(START)
    for upload in uploads:
        while upload.at > next_tick:
            network.run_until(next_tick, batch_s=1.0)
            network.run_scheduler()
            next_tick += 60.0
        network.put(upload)
        network.announce(upload, upload.at)
        network.run_until(upload.at, batch_s=1.0)
    network.run_until(next_tick, batch_s=1.0)
    network.run_scheduler()
    network.world.training_jobs.set(replace(description, status=JobStatus.COMPLETED))
    told_by_event(network)
    for _ in range(30):
        network.run_until(network.now + 60.0, batch_s=1.0)
        network.run_scheduler()
    return network


def on_disk(uploads: list[Upload], folder: Path) -> Path:
    """Write a job's objects into a folder as S3 would hold them."""
    for upload in uploads:
        file = folder / upload.key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(upload.body)
    return folder / JOB


def evaluated(place: Path, job: JobRecord, workers: int) -> ProfileEvaluation:
    """Evaluate a folder, knowing of the job what the deployed stack knows."""
    known = replace(job, episodes={}, closing=False)
    with WorkerPool(workers) as pool:
        return evaluate_profile(known, FAMILIES.plan(known), read_profile(open_folder(str(place))), pool)


def verdicts(job: JobRecord, records: tuple[StreamRecord, ...] | list[StreamRecord]) -> Sequence[RuleOutcome]:
    plan = FAMILIES.plan(job)
    return case_of(job, plan, FAMILIES.open(job.job, plan, records))[0].verdicts


def assert_same(network: Network, local: ProfileEvaluation) -> None:
    """Compare the verdicts with their episodes, the items' states, and the reports' bytes."""
    items = network.world.nodes.of_job(JOB)
    assert all(item.closed for item in items if item.key.stream != "job")
    assert verdicts(local.job, local.records) == verdicts(network.job(), items)
    assert dict(local.job.episodes) == dict(network.job().episodes)
    stored = {item.key: item.state for item in items if item.key.stream != "job"}
    assert {item.key: item.state for item in local.records if item.key.stream != "job"} == stored
    there = build_report(network.job(), items, now=0.0)
    here = build_report(local.job, local.records, now=0.0)
    assert here.managed
    assert dict(here.managed) == dict(there.managed)
    assert what_was_found(here.report) == what_was_found(there.report)


def what_was_found(report: Report) -> list[object]:
    """Return all that does not depend on who describes the job: SageMaker, or the profile alone."""
    streams = [(each.node, each.stream, each.share, each.evaluated_through) for each in report.coverage]
    found = [report.fired, report.findings, report.rules, report.cost, report.not_collected, streams]
    return [*found, report.verdict, report.job.steps, report.job.gpus, report.job.data_covered]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.thorough] if path.stem == LONGEST else [])
        for path in RECORDINGS
    ],
)
def test_both_engines_judge_a_recorded_job_equally(path: Path, tmp_path: Path) -> None:
    uploads = recorded(path)
    network = delivered(uploads, {})
    local = evaluated(on_disk(uploads, tmp_path), network.job(), workers=2)
    assert_same(network, local)


def test_both_engines_agree_on_two_nodes_with_many_processes(
    tmp_path: Path,
) -> None:
    uploads = small_job.uploads(low=True)
    network = delivered(uploads, small_job.SETTINGS)
    local = evaluated(on_disk(uploads, tmp_path), network.job(), workers=0)
    assert any(verdict.history.times_fired for verdict in verdicts(local.job, local.records))
    assert_same(network, local)


def gpu_minutes(levels: Sequence[int | None], node: str = "algo-1") -> list[Upload]:
    """Return a node's minutes at 5 s, with one core and one GPU at about the minute's level; None for no object."""
    uploads = []
    for index, level in enumerate(levels):
        if level is None:
            continue
        minute = START + 60 * index
        lines = []
        for tick in range(12):
            time, value = minute + 5.0 * tick + 0.5, float(level + tick % 5)
            for name, dimension in (("cpu0", "CPUUtilization"), ("gpu0", "GPUUtilization")):
                fields = {"Type": name[:3], "Name": name, "Dimension": dimension, "Value": value}
                lines.append(json.dumps({**fields, "NodeId": node, "Timestamp": time}) + "\n")
        uploads.append(Upload(minute + 60.5, system_key(ProfileRoot("", JOB), node, minute), "".join(lines).encode()))
    return uploads


# The local engine looks at the whole job each minute, the stack less often at a job that it polls slowly.
EACH_MINUTE = {"trainguard:evaluation-every-s": "60"}

SHORT = {"trainguard:LowGPUUtilization_window": "20", "trainguard:LowGPUUtilization_patience": "20"}
LOW, FINE, SILENT = 40, 90, None


def test_both_engines_count_two_fires_of_two_episodes(
    tmp_path: Path,
) -> None:
    uploads = gpu_minutes([40] * 12 + [90] * 20 + [40] * 12 + [90] * 20 + [40] * 2)
    network = delivered(uploads, SHORT)
    local = evaluated(on_disk(uploads, tmp_path), network.job(), workers=2)
    low = next(each for each in verdicts(local.job, local.records) if each.rule == "LowGPUUtilization")
    assert low.history.times_fired == 2
    assert local.job.episodes["LowGPUUtilization"] == 2
    assert_same(network, local)


@pytest.mark.parametrize("every_s", [180, pytest.param(300, marks=pytest.mark.thorough)])
def test_both_engines_agree_on_evaluation_every_third_minute(tmp_path: Path, every_s: int) -> None:
    uploads = gpu_minutes([90] * 25 + [40] * 12 + [90] * 20 + [40] * 12 + [90] * 20 + [40] * 2)
    network = delivered(uploads, SHORT | {"trainguard:evaluation-every-s": str(every_s)})
    local = evaluated(on_disk(uploads, tmp_path), network.job(), workers=2)
    items = network.world.nodes.of_job(JOB)
    here = {each.rule: each for each in verdicts(local.job, local.records)}
    there = {each.rule: each for each in verdicts(network.job(), items)}
    assert here["LowGPUUtilization"] == there["LowGPUUtilization"]
    assert here["LowGPUUtilization"].history.times_fired == 2
    assert dict(local.job.episodes) == dict(network.job().episodes)
    stored = {item.key: item.state for item in items if item.key.stream != "job"}
    assert {item.key: item.state for item in local.records if item.key.stream != "job"} == stored
    for rule, verdict in here.items():
        assert (verdict.result.status, verdict.result.measured) == (
            there[rule].result.status,
            there[rule].result.measured,
        )
        assert abs((verdict.history.fired_at or 0.0) - (there[rule].history.fired_at or 0.0)) < every_s


@pytest.mark.parametrize(
    ("nodes", "fires"),
    [
        pytest.param(
            [[LOW] * 7 + [SILENT] * 19 + [LOW] * 7, [FINE] * 33],
            1,
            id="a silent node comes back with its finding",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            [[LOW] * 7 + [SILENT] * 19 + [FINE] * 16, [FINE] * 42],
            1,
            id="a silent node comes back without its finding",
        ),
        pytest.param([[LOW] * 7, [FINE] * 28], 1, id="a silent node never comes back"),
        pytest.param(
            [[LOW] * 7, [FINE] * 28 + [LOW] * 9],
            2,
            id="a silent node never comes back and another fires",
        ),
        pytest.param(
            [
                [LOW] * 7 + [SILENT] * 19 + [LOW] * 14,
                [FINE] * 4 + [LOW] * 7 + [SILENT] * 19 + [LOW] * 10,
                [FINE] * 40,
            ],
            1,
            id="two nodes fall silent in turn and come back",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            [
                [LOW] * 7 + [SILENT] * 44 + [LOW] * 7,
                [FINE] * 28 + [LOW] * 7 + [SILENT] * 19 + [LOW] * 4,
                [FINE] * 58,
            ],
            2,
            id="two nodes fall silent in turn, each with a fire of its own",
        ),
        pytest.param(
            [
                [LOW] * 6 + [SILENT] * 20 + [LOW, SILENT] * 3 + [SILENT] * 9 + [LOW] + [SILENT] * 9 + [FINE] * 20,
                [FINE] * 71,
            ],
            1,
            id="a node that uploads single minutes",
        ),
        pytest.param(
            [[LOW] * 8 + [SILENT] * 9 + [LOW] * 30, [LOW] * 33 + [FINE] * 26, [FINE] * 59],
            1,
            id="a finding by comparing nodes is over when the job ends",
        ),
    ],
)
def test_both_engines_count_the_same_fires_of_silent_nodes(
    nodes: list[list[int | None]], fires: int, tmp_path: Path
) -> None:
    minutes = [each for number, levels in enumerate(nodes, 1) for each in gpu_minutes(levels, f"algo-{number}")]
    uploads = sorted(minutes, key=lambda each: (each.at, each.key))
    network = delivered(uploads, SHORT)
    local = evaluated(on_disk(uploads, tmp_path), network.job(), workers=0)
    low = next(each for each in verdicts(local.job, local.records) if each.rule == "LowGPUUtilization")
    assert low.history.times_fired == fires
    assert_same(network, local)
