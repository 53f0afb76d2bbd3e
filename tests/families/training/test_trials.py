"""The trials of the rules, live: the managed rules fire first at the step that each trial expects."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.families.training.runs import uploads_of
from tests.support.delivery import Network
from tests.support.small_job import BUCKET, JOB, START, Upload, describe
from tests.support.tensor_trials import expected, trials
from trainguard.config import Rule, rule_configs, tags
from trainguard.core.records import Status, StreamKey
from trainguard.engine.installed import FAMILIES
from trainguard.engine.streams.session import state_of
from trainguard.engine.training.debug_session import DebugState
from trainguard.engine.training.stream import TRAINING
from trainguard.formats.tensors.debug.keys import ALL_WORKERS
from trainguard.rules.training.registry import TRAINING_RULES, TRUSTED_RULES
from trainguard.rules.training.step_rule import StepState

RULES = {rule.name.rpartition("/")[2]: rule for rule in TRAINING_RULES}
SIMILAR = "training/SimilarAcrossRuns"
FIRST = ("first_fire", "first_fire_OR", "first_fire_by_published_text")
ORDERS = ("in order", "backwards", "shuffled, three workers")


def cases() -> list[Any]:
    """Return each expectation of a single run: trial, rule, parameters, and which steps fire first."""
    every = [
        (trial, rule, case)
        for trial, rules in expected().items()
        for rule, each in rules.items()
        for case in (each if isinstance(each, list) else [each])
        if rule in RULES and "other_trial" not in json.dumps(case.get("params"))
    ]
    firsts = [
        (*each, [] if each[2][key] is None else [each[2][key]]) for each in every for key in FIRST if key in each[2]
    ]
    exact = [(*each, each[2]["fires_at"]) for each in every if "fires_at" in each[2]]
    return [
        pytest.param(trial, rule, case["params"], steps, id=f"{trial}-{rule}")
        for trial, rule, case, steps in (*firsts, *exact)
    ]


def cases_in_orders() -> list[Any]:
    """Return each case in each order: one order a case, in turn, in every run of the tests, all in a thorough one."""
    return [
        pytest.param(
            *case.values, order, id=f"{case.id}-{order}", marks=[pytest.mark.thorough] * ((number - turn) % 3 > 0)
        )
        for number, case in enumerate(cases())
        for turn, order in enumerate(ORDERS)
    ]


def by_workers(files: Mapping[str, bytes], count: int) -> dict[str, bytes]:
    """Return the files of a run of one worker as several write them that all save the same."""
    found = {name: body for name, body in files.items() if "worker_0" not in name}
    for name, body in ((name, body) for name, body in files.items() if "worker_0" in name):
        for rank in range(count):
            named = body
            if name.endswith("_collections.json"):
                content = json.loads(body)
                content["_meta"]["num_workers"] = count
                named = json.dumps(content).encode()
            elif name.endswith(".json"):
                named = body.replace(b"worker_0", f"worker_{rank}".encode())
            found[name.replace("worker_0", f"worker_{rank}")] = named
    return found


def delivered(trial: str, tags: Mapping[str, str], order: str) -> Network:
    """Return a world that met a trial's objects in an order; each may come twice."""
    network = Network(families=FAMILIES)
    network.world.training_jobs.set(describe(dict(tags)))
    shuffled = order == ORDERS[2]
    uploads = uploads_of(by_workers(trials()[trial], 3) if shuffled else trials()[trial])
    for upload in uploads:
        network.put(upload)
    messages = uploads if order == ORDERS[0] else [*reversed(uploads), *uploads]
    if shuffled:
        random.Random(trial).shuffle(messages)
    for place, upload in enumerate(messages):
        network.announce(upload, START + place)
    network.run_until(START + 10_000.0, batch_s=30.0 if shuffled else 3.0)
    return network


def state_in(network: Network, rule: str) -> StepState:
    """Return what a rule remembers, which has no fault."""
    stored = state_of(network.node(StreamKey(JOB, ALL_WORKERS, TRAINING)), DebugState).stored_rules[f"training/{rule}"]
    assert stored.fault is None
    state: StepState = msgspec.msgpack.decode(stored.data, type=RULES[rule].state_type)
    return state


@pytest.mark.parametrize(("trial", "rule", "given", "steps", "order"), cases_in_orders())
def test_a_rule_fires_first_where_its_trial_expects_in_any_order(
    trial: str, rule: str, given: Mapping[str, Any], steps: list[int], order: str
) -> None:
    tags = {f"trainguard:{rule}_{name}": str(value) for name, value in given.items()}
    state = state_in(delivered(trial, {"trainguard:training-rules": rule, **tags}, order), rule)
    assert state.evaluated > 0
    assert state.steps[: max(1, len(steps))] == steps


def test_no_expectation_was_skipped() -> None:
    named = [(trial, rule) for trial, rules in expected().items() for rule in rules if rule in RULES]
    run_live = {tuple(case.values[:2]) for case in cases()}
    assert sorted(set(named) - run_live) == [("similar_b", "SimilarAcrossRuns"), ("stalled", "StalledTrainingRule")]


@pytest.mark.parametrize("order", ORDERS)
def test_healthy_trial_fires_no_rule_by_default(order: str) -> None:
    network = delivered("healthy", {}, order)
    assert [each for each in network.world.executions.started.values() if each["kind"] == "fire"] == []
    for rule in TRUSTED_RULES:
        assert state_in(network, rule.name.rpartition("/")[2]).fired == 0


def similar(
    other: str, placed: str | None, profile_uri: str | None = None, given: Mapping[str, str] | None = None
) -> tuple[Network, Any]:
    """Return the world, and what the rule remembers of a run that is compared with another one."""
    network = Network(families=FAMILIES)
    named = {"trainguard:training-rules": "SimilarAcrossRuns", "trainguard:SimilarAcrossRuns_other_trial": other}
    network.world.training_jobs.set(describe(dict(given or named)))
    if profile_uri is not None:
        network.world.training_jobs.set(replace(describe(), job=other, profile_uri=profile_uri))
    for name, body in trials()["similar_a"].items() if placed else ():
        network.put(Upload(START, f"{placed}/debug-output/{name}", body))
    for upload in uploads_of(trials()["similar_b"]):
        network.put(upload)
        network.announce(upload, START + 10.0)
    network.run_until(START + 10_000.0, batch_s=3.0)
    network.run_scheduler()
    item = network.node(StreamKey(JOB, ALL_WORKERS, TRAINING))
    stored = state_of(item, DebugState).stored_rules[SIMILAR]
    return network, msgspec.msgpack.decode(stored.data, type=RULES["SimilarAcrossRuns"].state_type)


@pytest.mark.parametrize(
    ("placed", "profile_uri"), [("other-job", None), ("team/other-job", f"s3://{BUCKET}/team")], ids=["beside", "named"]
)
def test_first_step_different_from_another_run_fires(placed: str, profile_uri: str | None) -> None:
    _, state = similar("other-job", placed, profile_uri)
    assert state.first.step == expected()["similar_b"]["SimilarAcrossRuns"]["first_fire"]


@pytest.mark.parametrize("end", ["", "/debug-output", "/debug-output/"])
def test_other_run_named_in_sdk_style_is_found(end: str) -> None:
    uri = f"s3://{BUCKET}/team/other-job{end}"
    rule = Rule.sagemaker(rule_configs.similar_across_runs(), other_trials_s3_input_paths=[uri])
    _, state = similar("", "team/other-job", given={each["Key"]: each["Value"] for each in tags(rule)})
    assert state.first.step == expected()["similar_b"]["SimilarAcrossRuns"]["first_fire"]


@pytest.mark.parametrize(
    ("other", "profile_uri", "said"),
    [
        ("other-job", None, "expected s3://profiles/"),
        ("other-job", "s3://theirs/x", "in bucket theirs"),
        ("s3://theirs/x/other-job/debug-output", None, "in bucket theirs, which is not read, expected a run in s3://"),
        (f"s3://{BUCKET}/other-job/debug-output", None, "expected s3://profiles/other-job/debug-output/collections/"),
        (f"s3://{BUCKET}/debug-output/", None, "it names no job, expected s3://<bucket>/<prefix>/<job>"),
    ],
)
def test_missing_other_run_is_an_error_with_advice(other: str, profile_uri: str | None, said: str) -> None:
    network, _ = similar(other, None, profile_uri)
    row = next(row for row in network.world.rows.of_job(JOB) if row.target == SIMILAR)
    assert row.status is Status.ERROR
    assert said in row.finding.reason
