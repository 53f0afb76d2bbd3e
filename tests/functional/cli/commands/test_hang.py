"""`trainguard hang`: the rank that holds up a job, for a person and as JSON."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.hangs.simulated import Fault, Job
from trainguard.cli.main import app

FIELDS = {"culprits", "victims", "without_dump", "operation", "group", "sequence", "line", "reason"}


def hang(*words: object) -> Result:
    return CliRunner().invoke(app, ["hang", *(str(word) for word in words)])


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    job = Job(8, fault=Fault(kind="lock", ranks=(5,), step=3))
    job.run()
    job.write(tmp_path, as_json=False, only_active=False)
    return tmp_path


def test_json_names_the_rank_and_what_others_wait_in(dumps: Path) -> None:
    answer = hang(dumps, "--json")
    document = json.loads(answer.stdout)
    assert answer.exit_code == 0
    assert document.keys() >= FIELDS
    assert (document["culprits"], document["operation"], document["group"]) == ([5], "all_reduce", "0")
    assert sorted(document["victims"]) == [0, 1, 2, 3, 4, 6, 7]


def test_a_person_reads_who_waits_and_what_to_do(dumps: Path) -> None:
    answer = hang(dumps)
    assert answer.exit_code == 0
    assert "Rank 5 has finished" in answer.stdout
    assert "7 of 8 ranks" in answer.stdout


@pytest.mark.parametrize(("more", "code"), [((), 0), (("--fail-on-fire",), 1)])
def test_exit_code_says_that_a_rank_is_named(dumps: Path, more: tuple[str, ...], code: int) -> None:
    assert hang(dumps, *more).exit_code == code


def test_exit_code_is_3_where_no_rank_is_named(tmp_path: Path) -> None:
    job = Job(4)
    job.run()
    job.write(tmp_path, as_json=True, only_active=False)
    assert hang(tmp_path).exit_code == 3


def test_an_unreadable_dump_is_named_on_stderr(dumps: Path) -> None:
    (dumps / "nccl_trace_rank_1").write_bytes(b"\x80\x02c__main__\nx\n.")
    answer = hang(dumps)
    assert "nccl_trace_rank_1 was not read: opcode b'c'" in answer.stderr


def test_other_files_of_a_whole_job_are_no_unread_dumps(dumps: Path) -> None:
    folder = dumps / "hang-dumps" / "algo-1" / "2026-11-28T10-00-00Z"
    folder.mkdir(parents=True)
    for each in dumps.glob("nccl_trace_rank_*"):
        each.rename(folder / each.name)
    minute = dumps / "profiler-output" / "system" / "1.json"
    minute.parent.mkdir(parents=True)
    minute.write_text("{}")
    document = json.loads(hang(dumps, "--json").stdout)
    assert (document["culprits"], document["unread"]) == ([5], {})


def test_a_folder_without_dumps_is_refused(tmp_path: Path) -> None:
    answer = hang(tmp_path)
    assert answer.exit_code == 2
    assert "holds no dump" in answer.stderr
