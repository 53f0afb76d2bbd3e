"""Counts of nodes, and the start of a job, are recomputed; and the checker finds those that are wrong."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.claims.check import checked, wrong_facts
from tests.claims.context import Raw, raw_of
from tests.claims.product import report_of, statuses_alone
from tests.claims.random_jobs import drawn, write_random_job
from tests.verdicts.labelled.catalogue.stock import HEALTHY, STARTING, ordinary, starved_by_disk
from tests.verdicts.labelled.description import Flaws, Job, Piece, Steps
from tests.verdicts.labelled.machines import G5_2XLARGE
from tests.verdicts.labelled.profile_files import start_of, write_job

Reported = tuple[Raw, dict[str, Any]]


def untrue(raw: Raw, report: dict[str, Any]) -> list[str]:
    return [str(claim) for _, claim in checked("job", raw, report).untrue]


def changed(report: dict[str, Any], rule: str, name: str, value: Any) -> dict[str, Any]:
    other = copy.deepcopy(report)
    finding = next(each for each in other["findings"] if each["rule"] == rule)
    next(fact for fact in finding["facts"] if fact["name"] == name)["value"] = value
    return other


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """Return a job of four nodes: CPUBottleneck fires on two of them, and has no verdict on one."""
    folder = write_random_job(drawn(78), tmp_path_factory.mktemp("claims"))
    return raw_of(folder), report_of(folder)


def test_what_is_said_of_several_nodes_is_true(several: Reported) -> None:
    assert untrue(*several) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nodes_judged", 3),
        ("nodes_fired", 3),
        ("nodes_without_verdict", 2),
        ("node_without_verdict", "algo-9"),
        ("points_seen_on_nodes", 221),
        ("points_judged_on_nodes", 613),
    ],
)
def test_a_wrong_count_of_nodes_is_found(several: Reported, name: str, value: Any) -> None:
    found = wrong_facts(several[0], changed(several[1], "CPUBottleneck", name, value), "CPUBottleneck")
    assert any(f"{name} = {value}" in each for each in found)


def test_a_node_alone_leaves_the_folder_as_it_was(several: Reported) -> None:
    folder = several[0].job.folder
    before = {file: file.read_bytes() for file in folder.rglob("*.*")}
    assert statuses_alone(folder, "algo-1")["CPUBottleneck"] == "FIRED"
    assert {file: file.read_bytes() for file in folder.rglob("*.*")} == before


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """Return a job of two nodes on whose GPUs storage has them wait; one writes nothing any more after 20 of 60 min."""
    job = Job(
        name="silent-node",
        group="silence",
        about="A node is lost.",
        machine=G5_2XLARGE,
        minutes=60,
        interval_s=10.0,
        nodes=2,
        pieces=ordinary(60, starved_by_disk(0.55)),
    )
    folder = write_job(job, tmp_path_factory.mktemp("claims"))
    until = start_of(job) + 1_200.0
    for file in folder.rglob("*.algo-2.json"):
        if float(file.name.partition(".")[0]) > until:
            file.unlink()
    return raw_of(folder), report_of(folder)


@pytest.mark.parametrize(("rule", "fired"), [("LowGPUUtilization", 1), ("IOBottleneck", 2)])
def test_a_rule_fires_no_more_on_a_node_long_silent(silent: Reported, rule: str, fired: int) -> None:
    raw, report = silent
    facts = next(each["facts"] for each in report["findings"] if each["rule"] == rule)

    assert next(fact["value"] for fact in facts if fact["name"] == "nodes_fired") == fired
    assert untrue(raw, report) == []


def begun(name: str, minutes: int, start_min: float, gap: tuple[float, float], steps: Steps | None) -> Job:
    again = Piece(load=STARTING, start_min=gap[0], end_min=start_min)
    return Job(
        name=name,
        group="restarts",
        about="A job that begins late.",
        machine=G5_2XLARGE,
        minutes=minutes,
        interval_s=10.0,
        pieces=ordinary(minutes, HEALTHY, again),
        flaws=Flaws(gaps=(gap,)),
        steps=steps,
    )


BEFORE_STEPS = begun("before-steps", 60, 45, (5, 12), Steps(first_min=45))
AMID_STEPS = begun("amid-steps", 90, 60, (20, 28), Steps(first_min=5, last_min=19))
WITHOUT_STEPS = replace(begun("without-steps", 60, 5, (2, 2), None), flaws=Flaws())


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Job], Reported]:
    """Return what is said about a job whose steps are expected; each is analyzed once."""
    known: dict[str, Reported] = {}

    def reported(job: Job) -> Reported:
        if job.name not in known:
            folder = write_job(job, tmp_path_factory.mktemp("claims"))
            about = folder / "job.json"
            about.write_text(json.dumps({**json.loads(about.read_text()), "framework_metrics": True}))
            known[job.name] = raw_of(folder), report_of(folder)
        return known[job.name]

    return reported


@pytest.mark.parametrize(
    ("job", "name", "more"),
    [
        (BEFORE_STEPS, "restarted_at", 60.0),
        (BEFORE_STEPS, "time_to_first_step", 60.0),
        (AMID_STEPS, "restarted_at", -60.0),
        (AMID_STEPS, "time_without_step", 60.0),
        (WITHOUT_STEPS, "time_at_work", 60.0),
        (WITHOUT_STEPS, "started_at", 60.0),
    ],
    ids=lambda value: value.name if isinstance(value, Job) else str(value),
)
def test_a_wrong_start_of_a_job_is_found(late: Callable[[Job], Reported], job: Job, name: str, more: float) -> None:
    raw, report = late(job)
    finding = next(each for each in report["findings"] if each["rule"] == "MaxInitializationTime")
    value = next(fact["value"] for fact in finding["facts"] if fact["name"] == name)

    assert untrue(raw, report) == []
    assert any(name in each for each in untrue(raw, changed(report, "MaxInitializationTime", name, value + more)))
