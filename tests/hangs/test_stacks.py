"""Stacks of py-spy and faulthandler, alone and beside dumps."""

import faulthandler
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hangs.simulated import Fault, Job
from trainguard.formats.hangs.stacks import StackError, main_thread
from trainguard.hangs.verdict import Doing, place_of
from trainguard.local.hangs import judge_hang

Frames = list[tuple[str, int, str]]
WAITS: Frames = [
    ("/x/site-packages/torch/distributed/distributed_c10d.py", 2806, "all_reduce"),
    ("/job/train.py", 90, "step"),
]
LOADS = [("/x/site-packages/torch/utils/data/dataloader.py", 733, "__next__"), ("/job/train.py", 71, "batches")]
LOCKED = [("/usr/lib/python3.11/threading.py", 320, "wait"), ("/job/cache.py", 12, "get")]


def spy_text(frames: Frames) -> str:
    lines = "\n".join(f"    {name} ({file}:{line})" for file, line, name in frames)
    head = 'Process 7: python train.py\nPython v3.11.7\n\nThread 9 (idle): "pin"\n    run (pin.py:1)\n'
    return f'{head}Thread 7 (active): "MainThread"\n{lines}\n'


def spy_json(frames: Frames) -> str:
    listed = [{"name": name, "filename": file, "line": line} for file, line, name in frames]
    return json.dumps([{"thread_name": "pin", "frames": []}, {"thread_name": "MainThread", "frames": listed}])


def fault_text(frames: Frames) -> str:
    lines = "\n".join(f'  File "{file}", line {line} in {name}' for file, line, name in frames)
    head = 'Thread 0x7f1 (most recent call first):\n  File "pin.py", line 1 in run\n\n'
    return f"{head}Current thread 0x7f0 (most recent call first):\n{lines}\n"


Form = Callable[[Frames], str]
FORMS: list[Form] = [spy_text, spy_json, fault_text]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("odd", "doing"), [(LOADS, "data"), (LOCKED, "lock")])
def test_the_rank_that_is_elsewhere_is_named(form: Form, odd: Frames, doing: str, tmp_path: Path) -> None:
    for rank in range(8):
        (tmp_path / f"stack_{rank}.txt").write_text(form(odd if rank == 5 else WAITS))
    verdict = judge_hang(str(tmp_path))
    assert verdict.culprits == [5]
    assert verdict.line == f"{odd[1][0]}:{odd[1][1]} {odd[1][2]}"
    assert verdict.waiting_line == "/job/train.py:90 step"
    assert verdict.details[0].doing == doing


def test_stacks_without_a_majority_name_no_rank(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"stack_{rank}").write_text(spy_text(WAITS if rank < 2 else LOADS))
    assert judge_hang(str(tmp_path)).culprits == []


def test_a_stack_gives_the_line_of_a_dump(tmp_path: Path) -> None:
    job = Job(8, fault=Fault(kind="slow_loader", ranks=(3,), step=4))
    job.run()
    job.write(tmp_path, as_json=True, only_active=False)
    (tmp_path / "stack_3.txt").write_text(spy_text(LOADS))
    verdict = judge_hang(str(tmp_path))
    assert (verdict.culprits, verdict.line) == ([3], "/job/train.py:71 batches")
    assert verdict.waiting_line.startswith("/job/train.py:")


def test_what_faulthandler_writes_here_is_read(tmp_path: Path) -> None:
    waits, ends = threading.Event(), threading.Thread(target=lambda: waits.wait(5))
    ends.start()
    with (tmp_path / "stack").open("w+") as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
    waits.set()
    ends.join()
    frames = main_thread((tmp_path / "stack").read_bytes(), "stack").frames
    assert frames[0].function == "test_what_faulthandler_writes_here_is_read"


@given(data=st.binary(max_size=400), text=st.text(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes, text: str) -> None:
    for each in (data, b"[" + data, text.encode(), b'Thread 1 (idle): "MainThread"\n' + data):
        with suppress(StackError):
            assert main_thread(each, "stack_1").frames


def test_the_own_line_is_found_where_py_spy_shortens_names() -> None:
    text = (
        'Thread 7 (idle): "MainThread"\n    wait (threading.py:355)\n    get (queue.py:180)\n'
        "    __next__ (torch/utils/data/dataloader.py:700)\n    train (train.py:71)\n"
    )
    place = place_of(main_thread(text.encode(), "stack_1"))
    assert (place.line, place.doing) == ("train.py:71 train", Doing.DATA)
