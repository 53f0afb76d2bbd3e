"""The trials of the rules, live: the managed rules fire first at the step that each trial expects."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.families.training.runs import uploads_of
from tests.support.delivery import Network
from tests.support.small_job import BUCKET, JOB, START, Upload, describe
from tests.support.tensor_trials import expected, trials
from trainguard.families.installed import FAMILIES
from trainguard.families.training.debug_session import state_of
from trainguard.families.training.keys import TRAINING
from trainguard.records import Status, StreamKey
from trainguard.rules.training.registry import TRAINING_RULES
from trainguard.tensors.debug.keys import ALL_WORKERS

RULES = {rule.name.rpartition("/")[2]: rule for rule in TRAINING_RULES}
SIMILAR = "training/SimilarAcrossRuns"
CASES = [
    (trial, rule, said)
    for trial, rules in expected().items()
    for rule, said in rules.items()
    if rule in RULES and "first_fire" in said and "other_trial" not in json.dumps(said.get("params"))
]


@pytest.mark.parametrize(("trial", "rule", "said"), CASES, ids=[f"{trial}-{rule}" for trial, rule, _ in CASES])
@pytest.mark.parametrize("backwards", [False, True])
def test_given_a_trial_when_its_objects_come_in_any_order_then_the_rule_fires_first_at_the_expected_step(
    trial: str, rule: str, said: Mapping[str, Any], *, backwards: bool
) -> None:
    network = Network(families=FAMILIES)
    tags = {f"trainguard:{rule}_{name}": str(value) for name, value in said["params"].items()}
    network.world.training_jobs.set(describe({"trainguard:training-rules": rule, **tags}))
    uploads = uploads_of(trials()[trial])
    for upload in uploads:
        network.put(upload)
    for place, upload in enumerate([*reversed(uploads), *uploads] if backwards else uploads):
        network.announce(upload, START + place)
    network.run_until(START + 10_000.0, batch_s=3.0)
    item = network.node(StreamKey(JOB, ALL_WORKERS, TRAINING))
    stored = state_of(item).stored_rules[f"training/{rule}"]
    assert stored.fault is None
    state = msgspec.msgpack.decode(stored.data, type=RULES[rule].state_type)
    assert (None if state.first is None else state.first.step) == said["first_fire"]


def similar(other: str, placed: str | None, profile_uri: str | None = None) -> tuple[Network, Any]:
    """Return the world, and what the rule remembers of a run that is compared with another one."""
    network = Network(families=FAMILIES)
    network.world.training_jobs.set(
        describe({"trainguard:training-rules": "SimilarAcrossRuns", "trainguard:SimilarAcrossRuns_other_trial": other})
    )
    if profile_uri is not None:
        network.world.training_jobs.set(replace(describe(), job=other, profile_uri=profile_uri))
    for name, body in trials()["similar_a"].items() if placed else ():
        network.put(Upload(START, f"{placed}/debug-output/{name}", body))
    for upload in uploads_of(trials()["similar_b"]):
        network.put(upload)
        network.announce(upload, START + 10.0)
    network.run_until(START + 10_000.0, batch_s=3.0)
    network.tick()
    item = network.node(StreamKey(JOB, ALL_WORKERS, TRAINING))
    stored = state_of(item).stored_rules[SIMILAR]
    return network, msgspec.msgpack.decode(stored.data, type=RULES["SimilarAcrossRuns"].state_type)


@pytest.mark.parametrize(
    ("placed", "profile_uri"), [("other-job", None), ("team/other-job", f"s3://{BUCKET}/team")], ids=["beside", "named"]
)
def test_given_another_run_in_the_bucket_when_compared_then_the_first_step_that_differs_fires(
    placed: str, profile_uri: str | None
) -> None:
    _, state = similar("other-job", placed, profile_uri)
    assert state.first.step == expected()["similar_b"]["SimilarAcrossRuns"]["first_fire"]


@pytest.mark.parametrize(
    ("profile_uri", "said"), [(None, "expected s3://profiles/"), ("s3://theirs/x", "in bucket theirs")]
)
def test_given_another_run_that_is_not_here_when_compared_then_the_rule_is_in_error_and_says_what_would_be_right(
    profile_uri: str | None, said: str
) -> None:
    network, _ = similar("other-job", None, profile_uri)
    row = next(row for row in network.world.rows.of_job(JOB) if row.target == SIMILAR)
    assert row.status is Status.ERROR
    assert said in row.finding.reason
