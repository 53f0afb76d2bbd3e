"""What the engine costs, as ratios within one run: `make bench`. Nothing here is timed by `make test`."""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from demo.recording import Recording
from demo.synthesis import minute_of_node
from infra.bundling import layer_folder
from infra.overlay import emulator
from trainguard.aws.environment import EVALUATION
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.system_stream import SystemSession
from trainguard.engine.streams.session import Announced
from trainguard.formats.profile.keys import SystemKey, parse_key, system_key
from trainguard.formats.profile.system import MAX_OBJECT_BYTES
from trainguard.testing.memory import MemoryProfileObjects

pytestmark = pytest.mark.perf

ROOT = Path(__file__).parents[2]
START = 1_795_248_000
WARM_MINUTES = 20
RATIO_LIMIT = 3.0
ROUNDS = 20
ITEM_LIMIT_BYTES = 7 * 1024
IMPORT_LIMIT_S = 0.7
IMPORT_ROUNDS = 7
BYTECODE_GAIN = 1.25
JOB = JobRecord("job", "arn", "bucket", "")
PROFILE = ProfileRoot("", "job")


class TypedLine(msgspec.Struct):
    """All six fields of a line: what any reader of these objects has to parse."""

    Type: str
    Name: str | None
    Dimension: str
    Value: float
    NodeId: str
    Timestamp: float


class SameBody(MemoryProfileObjects):
    """A bucket whose every object has the same bytes."""

    def __init__(self, body: bytes) -> None:
        self._same = body

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        """Return the bytes; the key must be the grammar's."""
        assert parse_key(key)
        return self._same


def one_object(body: bytes) -> ObjectSource:
    return ObjectSource(SameBody(body), "b", PROFILE, MAX_OBJECT_BYTES)


def applied(record: StreamRecord, plan: RulePlan, minute: int, body: bytes) -> StreamRecord:
    """Bring a node's item from one minute to the next, from bytes to bytes."""
    session = SystemSession(record, one_object(body), plan)
    key = system_key(PROFILE, "algo-1", minute)
    session.announce([Announced(key, SystemKey(PROFILE, "algo-1", minute))])
    for _ in session.apply(drain=False, modified_before=None):
        pass
    return session.to_record(closed=False)


@pytest.fixture(scope="module")
def warm() -> tuple[StreamRecord, int, bytes]:
    """A node of 96 cores and 8 GPUs after 20 minutes, and the bytes of its next one."""
    plan = FAMILIES.plan(JOB)
    record = StreamRecord(StreamKey("job", "algo-1", "system"), cursors={"minute": START, "newest": START})
    for index in range(1, WARM_MINUTES + 1):
        minute = START + 60 * index
        record = applied(record, plan, minute, minute_of_node(minute=minute, seed=index))
    minute = START + 60 * (WARM_MINUTES + 1)
    return record, minute, minute_of_node(minute=minute, seed=WARM_MINUTES + 1)


def show(figure: str) -> None:
    """Print a figure past pytest's capture."""
    os.write(1, f"\n{figure}\n".encode())


def best_of(work: Callable[[], object], rounds: int = 15) -> float:
    """Return the fastest of some rounds, in seconds: the machine's noise only ever adds."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def test_typed_parse_of_one_node_minute(benchmark: BenchmarkFixture, warm: tuple[StreamRecord, int, bytes]) -> None:
    """The yardstick."""
    _, _, body = warm
    assert len(benchmark(msgspec.json.Decoder(TypedLine).decode_lines, body)) == 25_320


def test_one_node_minute_from_bytes_to_new_state(
    benchmark: BenchmarkFixture, warm: tuple[StreamRecord, int, bytes]
) -> None:
    """96 cores, 8 GPUs, 500 ms: all rules, one item read and written."""
    record, minute, body = warm
    plan = FAMILIES.plan(JOB)
    after = benchmark(applied, record, plan, minute, body)
    assert after.cursors["minute"] == minute
    decoder = msgspec.json.Decoder(TypedLine)

    def parse() -> object:
        return decoder.decode_lines(body)

    rounds = [(best_of(lambda: applied(record, plan, minute, body), 3), best_of(parse, 3)) for _ in range(ROUNDS)]
    ratio = min(new for new, _ in rounds) / min(parsed for _, parsed in rounds)
    show(f"bytes to new state / typed parse: {ratio:.2f} (limit {RATIO_LIMIT}); item {len(after.state)} bytes")
    assert ratio < RATIO_LIMIT


def test_item_of_the_demos_healthy_node() -> None:
    """The largest state that a healthy node of the demo has at any minute."""
    recording = Recording.load(ROOT / "events" / "jobs" / "healthy.npz")
    plan = FAMILIES.plan(JOB)
    sizes = {}
    records: dict[str, StreamRecord] = {}
    for item in sorted(recording.objects("job"), key=lambda each: each.key):
        parsed = parse_key(item.key)
        if isinstance(parsed, SystemKey):
            before = records.get(parsed.node) or StreamRecord(
                StreamKey("job", parsed.node, "system"), cursors={"minute": parsed.minute - 60}
            )
            records[parsed.node] = applied(before, plan, parsed.minute, item.body)
            sizes[parsed.node, parsed.minute] = len(records[parsed.node].state)
    show(f"item of the demo's healthy node: at most {max(sizes.values())} bytes (limit {ITEM_LIMIT_BYTES})")
    assert max(sizes.values()) <= ITEM_LIMIT_BYTES


def test_import_of_the_evaluator(tmp_path: Path) -> None:
    """Importing the evaluator's handler from the layer in a fresh interpreter, beyond the interpreter's own start.

    The layer is the emulator's, which this machine's Python can import: built as that for AWS is, by another compiler.
    Seconds are those of a whole core.
    """
    deployed = layer_folder(emulator()) / "python"
    sources_alone = tmp_path / "python"
    shutil.copytree(deployed, sources_alone, ignore=shutil.ignore_patterns("__pycache__"))
    handler = ROOT / "lambdas" / "evaluate_objects"
    variables = [name.upper() for name in EVALUATION]
    environment = dict.fromkeys(variables, "x") | {"AWS_DEFAULT_REGION": "eu-west-1"}

    def run(code: str, site: Path) -> float:
        # The code is one of the literals below; -B because a function cannot write what it compiles into its layer.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-B", "-c", code]
        subprocess.run(command, env=environment | {"PYTHONPATH": str(site)}, cwd=handler, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    check = f"import handler, trainguard, numpy; assert trainguard.__file__.startswith({str(deployed)!r}), trainguard"
    run(check, deployed)
    rounds = [
        (run("import handler", deployed), run("import handler", sources_alone), run("pass", deployed))
        for _ in range(IMPORT_ROUNDS)
    ]
    start = min(each for _, _, each in rounds)
    seconds, uncompiled = (min(times) - start for times in list(zip(*rounds, strict=True))[:2])
    show(
        f"import of the evaluator: {seconds:.2f} s (limit {IMPORT_LIMIT_S}); "
        f"without the layer's bytecode {uncompiled:.2f} s, {uncompiled / seconds:.2f} times as long"
    )
    assert seconds <= IMPORT_LIMIT_S
    assert uncompiled / seconds >= BYTECODE_GAIN
