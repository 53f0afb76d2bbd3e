"""What a job outside SageMaker may say about itself in its file: each field at its limits, and beyond them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.memory import MemoryWorld
from tests.support.small_job import describe
from trainguard.core.errors import JobFileError
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobStatus
from trainguard.engine.jobs.job_file import read_job_file
from trainguard.engine.jobs.job_registry import KnownJobs

NAME = "job"


def file(**fields: Any) -> bytes:
    return json.dumps({"name": NAME, **fields}).encode()


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_count": 1},
        {"instance_count": 1_000},
        {"instance_type": "t"},
        {"instance_type": "t" * 128},
        {"started_at": 0},
        {"started_at": 32_503_679_999},
        {"started_at": 5, "ended_at": 5, "status": "Stopped"},
        {"profiling_interval_ms": 100},
        {"profiling_interval_ms": 3_600_000},
        {"tags": {"a": "b" * 256, "k" * 128: ""}},
        {"tags": {f"t{number}": "" for number in range(100)}, "settings": {f"s{number}": 1 for number in range(100)}},
        {"resources": {"instances": ["i-0123456789abcdef0"] * 64}},
        {"resources": {"instances": ["i-" + "a" * 8]}},
        {"resources": {"batch_job": "a" * 64 + "#12345"}},
    ],
)
def test_job_file_at_its_limits_is_accepted(fields: dict[str, Any]) -> None:
    assert read_job_file("k", file(**fields), NAME).job == NAME
    anybodys = read_job_file("k", file(**fields).ljust(65_536), None)
    assert (anybodys.job, anybodys.arn) == (NAME, f"unknown:{NAME}")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"instance_count": 1_001}, "instance_count"),
        ({"instance_type": ""}, "instance_type"),
        ({"instance_type": "t" * 129}, "instance_type"),
        ({"started_at": 32_503_680_000}, "started_at"),
        ({"started_at": 6, "ended_at": 5, "status": "Stopped"}, "ended_at"),
        ({"profiling_interval_ms": 99}, "profiling_interval_ms"),
        ({"profiling_interval_ms": 3_600_001}, "profiling_interval_ms"),
        ({"tags": {"k" * 129: ""}}, "tags"),
        (
            {
                "tags": {f"t{number}": "" for number in range(100)},
                "settings": {f"s{number}": 1 for number in range(101)},
            },
            "settings",
        ),
        ({"resources": {"instances": ["i-" + "a" * 7]}}, "resources"),
        ({"resources": {"instances": ["i-" + "a" * 18]}}, "resources"),
        ({"resources": {"batch_job": "a" * 65}}, "resources"),
        ({"resources": {"batch_job": "a:123456"}}, "resources"),
    ],
)
def test_job_file_beyond_its_limits_names_the_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(JobFileError) as refused:
        read_job_file("k", file(**fields), NAME)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("body", "job", "expected"),
    [
        (file(name="other"), NAME, "'job', the folder that the file lies in"),
        (b"{}", NAME, "'job', the folder that the file lies in"),
        (b"{}", None, "the job's name"),
    ],
)
def test_job_file_without_a_job_name_says_which_is_expected(body: bytes, job: str | None, expected: str) -> None:
    with pytest.raises(JobFileError, match=expected):
        read_job_file("k", body, job)


def test_settings_are_read_as_texts_and_never_allow_a_stop() -> None:
    told = read_job_file(
        "k", file(settings={"a": 1, "b": 2.5, "c": True, "stop-on-fire": "allowed", "d": "x"}, tags={"e": "f"}), NAME
    )
    assert told.tags == {
        f"trainguard:{name}": value for name, value in zip("abcd", ("1", "2.5", "True", "x"), strict=True)
    } | {"e": "f"}
    assert (told.status, told.framework_profiling, told.resources) == (JobStatus.UNKNOWN, False, ())
    with pytest.raises(JobFileError) as refused:
        read_job_file("k", b"z" * 300, NAME)
    assert str(refused.value).count("z") == 80
    with pytest.raises(JobFileError, match="over 65,536 bytes long"):
        read_job_file("k", file().ljust(65_537), NAME)


def test_repeated_questions_on_a_job_are_put_once_each() -> None:
    for described, body, asked in ((True, None, 0), (False, None, 1), (False, file(), 1), (False, b"{", 1)):
        world, root = MemoryWorld(), ProfileRoot("", NAME)
        if described:
            world.training_jobs.set(replace(describe(), job=NAME))
        if body is not None:
            world.objects.put("profiles", root.job_file, body, "application/json")
        known = KnownJobs(world.services, bucket="profiles", root=root)
        first, second = known.describe(NAME), known.describe(NAME)
        assert first == second
        assert (first is None) is (not described and body is None)
        assert world.faults.calls.count("TrainingJobs.describe") == 1
        assert world.faults.calls.count("ReadableObjects.get") == asked
        if body == b"{":
            assert first is not None
            assert (first.arn, first.status, first.framework_profiling) == ("unknown:job", JobStatus.UNKNOWN, False)
            assert first.file_fault is not None
            assert [each.what for each in world.journal.entries] == ["bad_job_files"]
