"""The sampler's watch: one folder a standstill, with stacks and dumps of the node's training processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainguard_collector.hangs.stacks import StackTaker
from trainguard_collector.hangs.watch import HangWatch, stem_of, training_processes
from trainguard_collector.objects import ASK, PAUSE, WRITER, Handover
from trainguard_collector.outgoing import Outgoing

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
STEP = '{{"name":"Step:ModeKeys.TRAIN","ph":"X","pid":1,"tid":0,"ts":1,"dur":1,"args":{{"step_num":"{}","pid":1}}}},\n'


class Node:
    """A node whose one training process is this one, as rank 3; the watch is fed with time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.at = folder, 0.0
        self.timeline = folder / f"1.rank3.{os.getpid()}.timeline"
        self.stacks: list[int] = []
        monkeypatch.setattr(StackTaker, "stack", lambda _, pid, **__: self._stack(pid))
        (folder / f"{os.getpid()}{WRITER}").touch()
        self.pipe = folder / f"{os.getpid()}{ASK}"
        os.mkfifo(self.pipe)
        self.asked = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)
        self.wakes: list[float] = []
        self.watch = HangWatch(Handover(folder, 10**9), "node-1", lambda: self.wakes.append(self.at))

    def _stack(self, pid: int) -> tuple[str, bytes]:
        self.stacks.append(pid)
        return ".json", b"[]"

    def pass_s(self, seconds: int) -> None:
        for _ in range(0, seconds, 5):
            self.watch.look(self.at, NOW + self.at)
            if self.watch._thread is not None:
                self.watch._thread.join()
            self.at += 5.0

    def step(self, count: int) -> None:
        for number in range(count):
            with self.timeline.open("a") as file:
                file.write(STEP.format(f"{self.at:.0f}{number}"))
            self.pass_s(5)

    def question(self) -> bytes:
        try:
            return os.read(self.asked, 100)
        except BlockingIOError:
            return b""

    def sent(self) -> list[str]:
        outgoing = Outgoing(self.folder, "run-1", "node-1")
        outgoing.prepare(final=False)
        return [key.removeprefix("run-1/") for key, _ in outgoing.ready()]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node(tmp_path, monkeypatch)
    yield node
    assert node.watch.faults == {}
    os.close(node.asked)


def test_standstill_takes_stacks_and_asks_for_dumps_once(node: Node) -> None:
    node.step(5)
    node.pass_s(600)
    assert node.stacks == [os.getpid()]
    assert node.question() == b"1800000080\n"
    assert node.question() == b""
    assert node.sent() == ["hang-dumps/node-1/2027-01-15T08-01-20Z/stack_rank_3.json"]
    assert node.wakes


def test_dump_within_a_standstill_shares_its_folder(node: Node) -> None:
    node.step(5)
    node.pass_s(300)
    (node.folder / "nccl_trace_rank_3").write_bytes(b"\x80.")
    node.pass_s(300)
    assert len(node.stacks) == 1
    assert {key.rpartition("/")[0] for key in node.sent()} == {"hang-dumps/node-1/2027-01-15T08-01-20Z"}
    assert len(node.sent()) == 2


def test_dump_after_a_resumed_standstill_is_of_another_one(node: Node) -> None:
    node.step(5)
    node.pass_s(100)
    (node.folder / "nccl_trace_rank_3").write_bytes(b"\x80.")
    node.pass_s(50)
    node.step(1)
    (node.folder / "nccl_trace_rank_3").write_bytes(b"\x80.")
    node.pass_s(20)
    assert len({key.split("/")[2] for key in node.sent()}) == len(node.stacks) == 2


def test_dump_alone_has_the_stacks_taken_without_a_question(node: Node) -> None:
    node.step(1)
    node.pass_s(95)
    (node.folder / "nccl_trace_rank_3").write_bytes(b"\x80.")
    node.pass_s(10)
    (node.folder / "nccl_trace_rank_4").write_bytes(b"\x80.")
    node.pass_s(10)
    assert (node.question(), node.stacks) == (b"", [os.getpid()])
    assert sorted(node.sent()) == [
        f"hang-dumps/node-1/2027-01-15T08-01-45Z/{name}"
        for name in ("nccl_trace_rank_3.gz", "nccl_trace_rank_4.gz", "stack_rank_3.json")
    ]


@pytest.mark.parametrize("kind", ["start-up", "checkpoint", "ended"])
def test_no_standstill_in(kind: str, node: Node) -> None:
    node.step(4 if kind == "start-up" else 5)
    if kind == "checkpoint":
        (node.folder / f"{os.getpid()}{PAUSE}").touch()
    if kind == "ended":
        (node.folder / f"{os.getpid()}{WRITER}").unlink()
    node.pass_s(1_500)
    assert (node.stacks, node.question(), node.sent()) == ([], b"", [])


def test_workers_of_loaders_are_no_progress(node: Node) -> None:
    node.step(5)
    for _ in range(20):
        with (node.folder / f"1.rank3w.{os.getpid()}.timeline").open("a") as file:
            file.write(STEP.format(1))
        node.pass_s(5)
    assert node.stacks == [os.getpid()]


def test_pause_of_a_process_that_is_gone_excuses_nothing(node: Node) -> None:
    (node.folder / f"{2**22}{PAUSE}").touch()
    node.step(5)
    node.pass_s(100)
    assert node.stacks == [os.getpid()]


def test_second_standstill_has_a_folder_of_its_own(node: Node) -> None:
    node.step(5)
    node.pass_s(100)
    node.step(1)
    node.pass_s(500)
    folders = {key.split("/")[2] for key in node.sent()}
    assert (len(folders), len(node.stacks)) == (2, 2)


def test_dump_that_cannot_be_read_stops_no_sampler(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise MemoryError("no memory")

    monkeypatch.setattr(node.watch._dumps, "take", fail)
    node.pass_s(10)
    node.watch.finish(NOW)
    assert node.watch.faults == {"hangs": "MemoryError: no memory"}
    node.watch._own.clear()


TREE = """
import os, subprocess, sys, time
own = os.environ.pop("DEPTH")
os.write(1, f"{own} {os.getpid()}\\n".encode())
for each in filter(None, sys.argv[1].split(";")):
    name, _, variables = each.partition(":")
    more = dict(pair.split("=") for pair in filter(None, variables.split(",")))
    words = [sys.executable, "-c", os.environ["TREE"], sys.argv[2], ""]
    subprocess.Popen(words, env={**os.environ, **more, "DEPTH": name})
time.sleep(60)
"""
Tree = Callable[[str, str], dict[str, int]]


@pytest.fixture
def tree() -> Iterator[Tree]:
    """Return a function that starts processes below this one, and returns their ids by name."""
    started: list[int] = []

    def start(first: str, below: str = "") -> dict[str, int]:
        environment = {**os.environ, "TREE": TREE, "DEPTH": "top", "TRAINGUARD_AUTOSTART": "0"}
        for name in ("RANK", "LOCAL_RANK"):
            environment.pop(name, None)
        words = [sys.executable, "-c", TREE, first, below]
        process = subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE)
        assert process.stdout is not None
        count = 1 + first.count(":") * (1 + below.count(":"))
        lines = [process.stdout.readline().split() for _ in range(count)]
        started.extend(int(pid) for _, pid in lines)
        return {name: int(pid) for name, pid in lines}

    yield start
    for pid in reversed(started):
        os.kill(pid, 9)


def test_ranks_are_found_without_their_workers(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getppid", os.getpid)
    monkeypatch.setattr("os.getpid", lambda: -1)
    pids = tree("a:RANK=4,LOCAL_RANK=0;b:RANK=5,LOCAL_RANK=1", "worker:X=1")
    assert training_processes(None, [], {}) == [(pids["a"], 4), (pids["b"], 5)]


def test_launcher_with_a_rank_of_its_own_is_left_out(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getppid", os.getpid)
    monkeypatch.setattr("os.getpid", lambda: -1)
    pids = tree("launcher:RANK=1", "a:RANK=9,LOCAL_RANK=0")
    assert training_processes(None, [], {}) == [(pids["a"], 9)]
    recorded = training_processes(None, [pids["launcher"], pids["top"]], {pids["launcher"]: 9})
    assert recorded == [(pids["launcher"], 9), (pids["top"], None)]
    assert stem_of(*recorded[1]) == f"stack_process_{pids['top']}"


def test_process_that_vanishes_while_looked_at_is_left_out() -> None:
    assert training_processes(2**22, [], {}) == []
