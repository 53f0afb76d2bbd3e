"""``python -m tests.scale.ways``: through how many files of the product each way of data passes.

A way is run once to warm caches, then once while calls are counted: the files that functions of the product are called
in, and the calls from one file to another.
"""

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from demo.synthesis import minute_of_node
from tests.families.training.test_scalars import events
from tests.perf.test_bench import JOB, START, WARM_MINUTES, applied
from tests.support.delivered import SYSTEM_1
from tests.support.delivery import Network
from tests.support.small_job import JOB as SMALL_JOB
from tests.support.small_job import Upload
from trainguard.cli.main import app
from trainguard.core.records import StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES

PRODUCT = "rules_layer/trainguard/"


@dataclass(frozen=True, slots=True)
class Way:
    """How many files of the product were called, and how often one called another."""

    files: int
    passes: int


def way_of(run: Callable[[], object]) -> Way:
    """Count the files and passes of ``run``."""
    files: set[str] = set()
    passes = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal passes
        name = frame.f_code.co_filename
        if event != "call" or PRODUCT not in name:
            return
        files.add(name)
        caller = frame.f_back
        if caller is not None and PRODUCT in caller.f_code.co_filename and caller.f_code.co_filename != name:
            passes += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return Way(len(files), passes)


def profile_minute() -> Way:
    """A minute's object of a node in the middle of a job: from bytes to the node's item."""
    plan = FAMILIES.plan(JOB)
    record = StreamRecord(StreamKey("job", "algo-1", "system"), cursors={"minute": START, "newest": START})
    for index in range(1, WARM_MINUTES + 1):
        minute = START + 60 * index
        record = applied(record, plan, minute, minute_of_node(minute=minute, seed=index))
    newest = START + 60 * (WARM_MINUTES + 1)
    body = minute_of_node(minute=newest, seed=WARM_MINUTES + 1)
    return way_of(lambda: applied(record, plan, newest, body))


def delivered_minute() -> Way:
    """A minute's object of a node: from the message to the item, rows and messages that are written."""
    network = Network()
    *before, newest = SYSTEM_1
    for upload in before:
        _announced(network, upload)()
    return way_of(_announced(network, newest))


def diverging_scalar() -> Way:
    """An event file whose loss becomes NaN: from the message to the fire's execution."""
    network = Network()
    key = f"{SMALL_JOB}/tensorboard-output/events.out.tfevents.1.host"
    good = {step: 1.0 / (step + 1) for step in range(20)}
    start = SYSTEM_1[0].at
    _announced(network, Upload(start, key, events(good)))()
    broken = Upload(start + 60.0, key, events({**good, **dict.fromkeys(range(20, 40), float("nan"))}))
    way = way_of(_announced(network, broken))
    if not network.world.executions.started:
        raise RuntimeError("the loss became NaN, and no rule fired")
    return way


def analyzed_folder() -> Way:
    """`trainguard analyze` of a small folder, in one process."""
    with tempfile.TemporaryDirectory(prefix="ways-") as place:
        folder = Path(place) / "job"
        for upload in SYSTEM_1:
            file = folder / upload.key.partition("/")[2]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(upload.body)

        def analyze() -> None:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                app(["analyze", str(folder), "--out", f"{place}/out"], standalone_mode=False)

        analyze()
        return way_of(analyze)


def _announced(network: Network, upload: Upload) -> Callable[[], None]:
    """Put an object into the bucket and its message into the queue; return what delivers that."""
    network.put(upload)
    network.announce(upload, upload.at)
    return lambda: network.run_until(upload.at + 60.0, batch_s=1.0)


WAYS: dict[str, Callable[[], Way]] = {
    "a profile minute to its item": profile_minute,
    "a delivered profile minute to what is stored": delivered_minute,
    "a scalar to a fire": diverging_scalar,
    "analyze of a small folder": analyzed_folder,
}


if __name__ == "__main__":
    for name, way in WAYS.items():
        found = way()
        sys.stdout.write(f"{name}: {found.files} files, {found.passes:,} passes between files\n")
