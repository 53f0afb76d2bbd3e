"""`analyze` of a job whose ranks left dumps: HungJob names the rank that holds up the others, its node and its line."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.hangs.simulated import Fault
from tests.hangs.simulated import Job as Ranks
from tests.verdicts.labelled.catalogue.collector import HANGS
from tests.verdicts.labelled.description import Reading
from tests.verdicts.labelled.profile_files import START, write_job
from trainguard.local.api import JobReport, analyze

HANG_MIN = 24.0
STACK = """Thread 0x1 (idle): "MainThread"
    wait (threading.py:355)
    get (queue.py:180)
    load (/job/train.py:71)
"""


def hung_job(folder: Path, *readings: Reading) -> Path:
    """Return the folder of a job that hangs from minute 24 on, without dumps, with further readings of GPUs."""
    job = next(each for each in HANGS if each.name == "collected-hang-in-a-collective")
    pieces = [replace(piece, start_min=min(piece.start_min, HANG_MIN)) for piece in job.pieces]
    assert job.steps is not None
    steps = replace(job.steps, last_min=HANG_MIN, step_s=3.0)
    assert job.collected is not None
    collected = replace(job.collected, readings=(*job.collected.readings, *readings))
    shorter = replace(job, minutes=40.0, pieces=tuple(pieces), interval_s=5.0, steps=steps, collected=collected)
    return write_job(shorter, folder)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hung_job(tmp_path_factory.mktemp("job"))


@pytest.fixture
def hung(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / recorded.name))


def leave_dumps(folder: Path, kind: str = "lock", rank: int = 5, *, as_json: bool = False) -> None:
    folder.mkdir(parents=True)
    ranks = Ranks(8, fault=Fault(kind=kind, ranks=(rank,), step=3))
    ranks.run()
    ranks.write(folder, as_json=as_json, only_active=False)


def taken_at(minute: float) -> str:
    return datetime.fromtimestamp(START + 60.0 * minute, UTC).strftime("%Y-%m-%dT%H-%M-%SZ")


def said(report: JobReport) -> tuple[str, str, dict[str, object]]:
    (found,) = [each for each in report.document.findings if each.rule == "HungJob"]
    return found.reason, found.advice or "", {each.name: each.value for each in found.facts}


def test_hung_job_names_rank_node_line_and_what_others_wait_in(hung: Path) -> None:
    folder = hung / "hang-dumps" / "algo-1" / taken_at(HANG_MIN + 2.0)
    leave_dumps(folder)
    (folder / "stack_rank_5.txt").write_text(STACK)
    reason, advice, facts = said(analyze(hung))
    assert "; rank 5 of algo-1 has finished " in reason
    assert "7 ranks wait, in all_reduce " in reason
    assert "at /job/train.py:71 load: look at who holds it. Stop the job" in advice
    named = {"culprit_kind": "not_entered", "culprit_rank": 5, "ranks_waiting": 7, "awaited_operation": "all_reduce"}
    assert facts.items() >= named.items()
    assert facts["culprit_line"] == "/job/train.py:71 load"


@pytest.mark.parametrize("place", ["hang-dumps/algo-1", "checkpoints", "trainer-output/debug"])
def test_dumps_count_wherever_their_recorder_wrote_them(place: str, hung: Path) -> None:
    leave_dumps(hung / place)
    assert said(analyze(hung))[2]["culprit_rank"] == 5


def test_a_killed_rank_is_on_the_node_of_its_neighbours(hung: Path) -> None:
    leave_dumps(hung / "hang-dumps" / "algo-1" / taken_at(HANG_MIN + 2.0), "killed")
    reason, advice, _ = said(analyze(hung))
    assert "; rank 5 of algo-1 has left no dump; 7 ranks wait" in reason
    assert advice.startswith("Look for the end of rank 5 of algo-1: killed, out of memory, or stopped.")


def test_without_dumps_the_advice_says_how_to_get_them(hung: Path) -> None:
    reason, advice, facts = said(analyze(hung))
    assert "rank" not in reason
    assert "TORCH_FR_BUFFER_SIZE and" in advice
    assert not {name for name in facts if name.startswith(("culprit", "awaited"))}


def test_dumps_of_an_earlier_moment_say_nothing_of_a_hang(hung: Path) -> None:
    leave_dumps(hung / "hang-dumps" / "algo-1" / taken_at(HANG_MIN - 5.0))
    assert "TORCH_FR_BUFFER_SIZE" in said(analyze(hung))[1]


def test_a_damaged_dump_costs_only_itself(hung: Path) -> None:
    folder = hung / "hang-dumps" / "algo-1" / taken_at(HANG_MIN + 2.0)
    leave_dumps(folder)
    (folder / "nccl_trace_rank_2").write_bytes(b"\x80\x02cos\nsystem\n.")
    (folder / "nccl_trace_rank_9").symlink_to(folder)
    assert said(analyze(hung))[2]["culprit_rank"] == 5
