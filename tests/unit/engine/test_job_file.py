"""Job files: what jobs outside SageMaker say about themselves, and what of it is refused."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_job import JOB, uploads
from trainguard.core.errors import JobFileError
from trainguard.core.records import JobStatus
from trainguard.engine.jobs.job_file import MAX_BYTES, read_job_file
from trainguard.engine.settings.tag_names import STOP_TAG

KEY = f"{JOB}/job.json"
SYSTEM_1 = [each for each in uploads() if "system/incremental" in each.key and "algo-1" in each.key]
END_MARK = uploads()[-1]
SETTINGS = {"LowGPUUtilization_window": 20, "LowGPUUtilization_patience": 20}


def file(**fields: Any) -> bytes:
    return json.dumps({"name": JOB, **fields}).encode()


def test_complete_file_has_every_field_understood() -> None:
    body = file(
        schema_version=1,
        status="Failed",
        instance_type="ml.p4d.24xlarge",
        instance_count=16,
        started_at="2026-11-21T10:00:00+02:00",
        ended_at=1_795_252_000.5,
        profiling_interval_ms=500,
        framework_metrics=True,
        settings={"LowGPUUtilization_threshold_p95": 60, "StepOutlier_mode": "TRAIN"},
        tags={"team": "vision", STOP_TAG: "allowed"},
    )
    told = read_job_file(KEY, body, JOB)
    assert (told.status, told.instance_type, told.instance_count) == (JobStatus.FAILED, "ml.p4d.24xlarge", 16)
    assert (told.started_at, told.ended_at, told.profiling_interval_ms) == (1_795_248_000.0, 1_795_252_000.5, 500)
    assert told.framework_profiling is True
    assert told.tags == {
        "trainguard:LowGPUUtilization_threshold_p95": "60",
        "trainguard:StepOutlier_mode": "TRAIN",
        "team": "vision",
    }
    assert told.arn == f"unknown:{JOB}"


@pytest.mark.parametrize(
    ("resources", "named"),
    [
        ({}, ()),
        ({"batch_job": "5e2f6b1c-7a0d:3"}, ("batch-job/5e2f6b1c-7a0d:3",)),
        ({"cluster": "prod", "workload": "job/team-a/train-17"}, ("workload/prod/job/team-a/train-17",)),
        ({"cluster": "hpc", "workload": "slurm/1234"}, ("workload/hpc/slurm/1234",)),
        (
            {"instances": ["i-01234567", "i-0123456789abcdef0", "i-01234567"]},
            ("instance/i-01234567", "instance/i-0123456789abcdef0"),
        ),
    ],
)
def test_resources_are_each_named_once_with_their_kind(resources: dict[str, object], named: tuple[str, ...]) -> None:
    assert read_job_file(KEY, file(resources=resources), JOB).resources == named


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", None),
        (b"[]", None),
        (b"\xff", None),
        (b" " * (MAX_BYTES + 1), None),
        (b"{}", "name"),
        (file(name="another"), "name"),
        (file(colour="red"), "colour"),
        (file(schema_version=2), "schema_version"),
        (file(instance_count=0), "instance_count"),
        (file(instance_count="4"), "instance_count"),
        (file(status="Done"), "status"),
        (file(started_at="yesterday"), "started_at"),
        (file(started_at="2026-11-21T10:00:00"), "started_at"),
        (file(started_at=-1), "started_at"),
        (file(ended_at=1_795_252_000), "status"),
        (file(status="InProgress", ended_at=1_795_252_000), "status"),
        (file(status="Completed", started_at=200, ended_at=100), "ended_at"),
        (file(settings={"a": [1]}), "settings"),
        (file(tags={f"tag-{number}": "" for number in range(201)}), "settings"),
        (file(tags={"a": "b" * 257}), "tags"),
        (file(resources={"instances": ["i-1"]}), "resources"),
        (file(resources={"instances": ["i-0123456789abcdef0"] * 65}), "resources"),
        (file(resources={"batch_job": "a b"}), "resources"),
        (file(resources={"workload": "slurm/1234"}), "resources"),
        (file(resources={"cluster": "prod"}), "resources"),
        (file(resources={"cluster": "prod", "workload": "job/../a"}), "resources"),
        (file(resources={"cluster": "prod", "workload": "slurm/1;2"}), "resources"),
        (file(resources={"cluster": "prod", "workload": "slurm/1", "batch_job": "a"}), "resources"),
        (file(resources={"batch_job": "a\n"}), "resources"),
        (file(resources={"batch_job": "a", "instances": ["i-0123456789abcdef0"]}), "resources"),
        (file(resources={"cluster": "a"}), "resources"),
    ],
)
def test_fault_error_names_file_field_and_a_valid_value(body: bytes, field: str | None) -> None:
    with pytest.raises(JobFileError) as caught:
        read_job_file(KEY, body, JOB)
    assert caught.value.field == field
    assert KEY in str(caught.value)
    assert "expected" in str(caught.value)
    assert len(str(caught.value)) < 1_000


@given(st.one_of(st.binary(max_size=200), st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists)))
def test_any_body_is_understood_or_refused_by_name(body: Any) -> None:
    given_body = body if isinstance(body, bytes) else json.dumps({"name": JOB, "tags": body}).encode()
    with contextlib.suppress(JobFileError):
        assert read_job_file(KEY, given_body, JOB).job == JOB
