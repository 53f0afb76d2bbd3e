"""Who owns a name: whatever comes from elsewhere, in whatever order, a job is judged by its own objects."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.delivery import Network, stored_node
from tests.support.examples import one_in
from tests.support.late_events import arrive, claimed_name, found_by_tick, outside, settle, told_by_event
from tests.support.small_job import BUCKET, JOB, START, Upload, describe, uploads
from tests.unit.engine.test_names import ATTACKER, PLACES, TEAM
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus, StreamKey, StreamRecord
from trainguard.core.timestamps import iso_time
from trainguard.engine.jobs.job_registry import ASKED_EVERY_S

SYSTEM = [each for each in uploads() if "system/incremental" in each.key and "algo-1" in each.key]
FEW = SYSTEM[:4]
MUTING = b'{"name": "small-job", "settings": {"muted": "all", "evaluate": "off"}}'
STAGING = b'{"name": "small-job", "settings": {"muted": "all", "staged": "all"}}'
NAMING = b'{"name": "small-job", "settings": {"LowGPUUtilization_window": 20}}'


def at(prefix: str, chosen: Sequence[Upload] = FEW, file: bytes = NAMING) -> list[Upload]:
    """Return a job of that place: its own file, then objects."""
    return [
        Upload(START, f"{prefix}{JOB}/job.json", file),
        *(Upload(each.at, prefix + each.key, each.body) for each in chosen),
    ]


def named(prefix: str) -> str:
    return ProfileRoot(prefix, JOB).place_name


def item(network: Network, name: str) -> JobRecord:
    record = network.world.jobs.load(name)
    assert record is not None, name
    return record


def node(network: Network, name: str) -> StreamRecord:
    return stored_node(network.world, StreamKey(name, "algo-1", "system"))


def judged(record: StreamRecord) -> tuple[Any, ...]:
    return record.state, dict(record.cursors), record.watermark_s


@cache
def alone(prefix: str) -> tuple[Any, ...]:
    network = outside()
    arrive(network, at(prefix))
    return judged(node(network, named(prefix)))


def from_bucket(network: Network, bucket: str, upload: Upload) -> None:
    """Deliver the event of an object of a bucket, which no rule of the stack would let through."""
    network.world.objects.put(bucket, upload.key, upload.body, "application/json")
    detail = {"bucket": {"name": bucket}, "object": {"key": upload.key}}
    network.send(json.dumps({"source": "aws.s3", "time": iso_time(upload.at), "detail": detail}), network.now)
    network.run_until(network.now, batch_s=0.0)


@pytest.mark.parametrize("file", [MUTING, NAMING, b"{"])
def test_job_file_elsewhere_does_not_block_the_jobs_own_objects(file: bytes) -> None:
    network = outside()
    arrive(network, at(ATTACKER, [], file))
    arrive(network, SYSTEM)
    assert (item(network, JOB).prefix, item(network, JOB).policy.evaluated) == ("", True)
    assert network.world.journal.totals.get("foreign_keys", 0) == (file == b"{")
    fires = [each for each in network.world.executions.started.values() if each["kind"] == "fire"]
    assert {each["job"] for each in fires} <= {JOB}
    assert judged(node(network, JOB))[2] is not None


def test_jobs_of_one_folder_name_have_separate_rows_and_alerts() -> None:
    network = outside()
    settings_file = NAMING.replace(b"20}", b'20, "LowGPUUtilization_patience": 20}')
    arrive(network, at("", SYSTEM, settings_file))
    arrive(network, at(TEAM, SYSTEM, settings_file))
    fires = [each for each in network.world.executions.started.values() if each["rule"] == "LowGPUUtilization"]
    assert {(each["job"], str(each["reportUri"]).partition("/rule-output")[0]) for each in fires} == {
        (JOB, f"s3://{BUCKET}/{JOB}"),
        ("small-job@team-a/runs/", f"s3://{BUCKET}/{TEAM}{JOB}"),
    }
    assert len({each["fireId"] for each in fires}) == 2
    for name in (JOB, named(TEAM)):
        assert any(row.rule == "LowGPUUtilization" and row.times_fired for row in network.world.rows.of_job(name))


def test_objects_of_another_bucket_get_no_name_of_the_job() -> None:
    network = outside()
    for upload in at("", file=MUTING):
        from_bucket(network, "another-bucket", upload)
    assert network.world.jobs.load(JOB) is None
    assert network.world.journal.totals["foreign_keys"] == len(FEW) + 1
    arrive(network, at(""))
    assert judged(node(network, JOB)) == alone("")


@pytest.mark.parametrize(
    ("bucket", "prefix"), [(BUCKET, ATTACKER), ("the-bucket-before", ""), ("the-bucket-before", TEAM)]
)
def test_old_item_yields_its_name_to_the_objects_entitled_to_it(bucket: str, prefix: str) -> None:
    network = outside()
    network.world.jobs.register(claimed_name(prefix, MUTING, bucket))
    arrive(network, at("", FEW))
    job = item(network, JOB)
    assert (job.bucket, job.prefix, job.policy.evaluated, job.generation) == (BUCKET, "", True, 1)
    assert node(network, JOB).watermark_s == alone("")[2]
    network.run_scheduler()
    arrive(network, at(prefix, FEW))
    assert item(network, named(prefix)).prefix == prefix


def test_old_item_keeps_its_name_while_its_own_objects_go_on() -> None:
    network = outside()
    network.world.jobs.register(claimed_name(TEAM, NAMING))
    arrive(network, at(TEAM))
    assert judged(node(network, JOB))[2] == alone(TEAM)[2]
    assert network.world.jobs.load(named(TEAM)) is None
    assert (item(network, JOB).prefix, item(network, JOB).generation) == (TEAM, 0)


def test_contested_old_item_queries_sagemaker_once_in_a_while() -> None:
    network = outside()
    network.world.jobs.register(claimed_name(ATTACKER, MUTING))
    description = TrainingJobDescription(**{**_fields(describe()), "profile_uri": "s3://a-third-bucket"})
    network.world.training_jobs.set(description)
    before = network.world.faults.calls.count("TrainingJobs.describe")
    for each in SYSTEM[:3] * 10:
        network.put(each)
        network.announce(each, network.now)
        network.run_until(network.now, batch_s=0.0)
    assert network.world.faults.calls.count("TrainingJobs.describe") - before == 1
    network.now += ASKED_EVERY_S
    arrive(network, SYSTEM[3:4])
    assert network.world.faults.calls.count("TrainingJobs.describe") - before == 2


def _fields(description: TrainingJobDescription) -> dict[str, Any]:
    return {name: getattr(description, name) for name in TrainingJobDescription.__slots__}


@pytest.mark.parametrize("notice", [told_by_event, found_by_tick])
@pytest.mark.parametrize("own", [ATTACKER, TEAM, ""])
def test_place_that_becomes_a_sagemaker_job_is_closed(notice: Any, own: str) -> None:
    network = outside()
    arrive(network, at(ATTACKER, file=STAGING))
    place = f"s3://{BUCKET}/{own}".rstrip("/")
    network.world.training_jobs.set(TrainingJobDescription(**{**_fields(describe()), "profile_uri": place}))
    notice(network)
    arrive(network, [Upload(each.at, own + each.key, each.body) for each in FEW])
    settle(network, 8)
    job = item(network, JOB)
    assert (job.arn, job.prefix, job.status) == (describe().arn, own, JobStatus.IN_PROGRESS)
    assert judged(node(network, JOB))[2] is not None
    claim = item(network, named(ATTACKER))
    assert (claim.is_outside, claim.closing or not claim.active) == (True, True)
    network.run_until(network.now + 60.0, batch_s=0.0)
    settle(network, 3)
    assert item(network, named(ATTACKER)).active is False


def test_objects_elsewhere_with_a_sagemaker_job_name_are_ignored() -> None:
    network = Network()
    arrive(network, at("", FEW))
    arrive(network, at(ATTACKER, file=MUTING))
    assert network.world.jobs.load(named(ATTACKER)) is None
    assert network.world.journal.totals["foreign_keys"] == len(FEW) + 1


ORDERS = st.permutations([(place, number) for place in PLACES for number in range(2)])


@one_in(6)
@given(order=ORDERS, foreign=st.integers(0, 8))
def test_equal_folder_names_of_many_places_stay_separate_jobs(order: list[tuple[str, int]], foreign: int) -> None:
    network = outside()
    for count, (place, half) in enumerate(order):
        if count == foreign:
            for upload in at("", file=MUTING):
                from_bucket(network, "another-bucket", upload)
        whole = at(place, file=STAGING if place == ATTACKER else NAMING)
        arrive(network, whole[:3] if half == 0 else whole[3:])
    for place in PLACES:
        job = item(network, named(place))
        assert (job.bucket, job.prefix, job.root, job.policy.evaluated) == (
            BUCKET,
            place,
            ProfileRoot(place, JOB),
            True,
        )
    settle(network, 6)
    for place in PLACES:
        assert node(network, named(place)).watermark_s == alone(place)[2]
    assert item(network, JOB).policy.alerts.muted == ()
