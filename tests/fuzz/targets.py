"""What is fuzzed: every parser of what others write, and what each function makes of its event."""

import io
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.functions import FUNCTION_TARGETS
from tests.fuzz.sources import DATA, SOURCE_TARGETS, delivered, unpacked
from tests.fuzz.stored import STORED_TARGETS
from tests.fuzz.target import Target, documents, of_answer, of_document
from tests.hangs.simulated import Fault, Job
from tests.hangs.test_ras import answer, communicator
from tests.kernels.test_memory_timeline import EVENTS, plain, raw
from tests.sources.test_logs_and_tables import logged, report
from tests.stragglers.simulated import Job as ParallelJob
from tests.support import xplanes
from tests.support.kernel_traces import real_names, real_text
from tests.support.memory_snapshots import Training, as_json, pickled
from tests.support.nsight_exports import SCHEMAS, steps
from tests.support.run_folder import MemoryFiles
from tests.support.small_job import uploads
from tests.support.tensor_files import HookWriter
from trainguard.core.ports import StreamTask
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_file import read_job_file
from trainguard.engine.messages import Message, encode_task, sort_messages
from trainguard.engine.settings.sources import read_document
from trainguard.formats.hangs.flight_recorder import read_dump
from trainguard.formats.hangs.ras import read_ras
from trainguard.formats.hangs.stacks import main_thread
from trainguard.formats.operations import read_operations
from trainguard.formats.plain_pickle import PickleError, read_plain
from trainguard.formats.profile.columns import read_framework_object
from trainguard.formats.profile.system import read_system_object
from trainguard.formats.runs.dynolog import read_dynolog
from trainguard.formats.runs.mlflow.stores import database_runs, is_database, read_database_run
from trainguard.formats.runs.neuron_monitor import read_neuron_monitor
from trainguard.formats.runs.nvidia_smi import read_nvidia_smi
from trainguard.formats.runs.prometheus.job import read_job
from trainguard.formats.runs.prometheus.queries import QueryRange
from trainguard.formats.runs.scalar_lines import ScalarLines
from trainguard.formats.runs.table import read_mapping, read_table
from trainguard.formats.runs.wandb.run_file import read_run_file
from trainguard.formats.tensors.debug.json_files import decode_collections, decode_index
from trainguard.formats.tensors.scalars.bulk import read_scalars
from trainguard.formats.tensors.scalars.trainer_files import read_history, read_trainer_state
from trainguard.hangs.verdict import hang_verdict
from trainguard.kernels.memory.snapshot import read_snapshot
from trainguard.kernels.memory.timeline import read_timeline
from trainguard.kernels.profile import rank_profile, snapshot_profile
from trainguard.kernels.readers.reading import read_any
from trainguard.pricing.table import read_prices
from trainguard.stack.polling.poll import written_object
from trainguard.stack.polling.run_files import run_file_key
from trainguard.stragglers.verdict import straggler_verdict

AT = 1_800_000_000.0
_SPY = b'[{"thread_name": "MainThread", "frames": [{"filename": "a.py", "line": 1, "name": "f"}]}]'


def _trace(name: str, body: bytes) -> object:
    return rank_profile(read_any(name, partial(io.BytesIO, body)))


def _snapshot(body: bytes) -> object:
    return snapshot_profile(read_snapshot("snapshot.pickle", body))


def _timeline(body: bytes) -> object:
    return snapshot_profile(read_timeline("timeline.json", body))


def _snapshot_seeds() -> list[bytes]:
    training = Training(leak=1)
    training.setup()
    training.run(2)
    snapshots = [training.allocator.snapshot(version) for version in ("1.13", "2.12")]
    return [*(pickled(each, protocol) for each in snapshots for protocol in (0, 2, 4)), as_json(snapshots[1])]


def _hang_dump(body: bytes) -> object:
    return hang_verdict([read_dump(body, "rank_1"), *(read_dump(each, "rank_2") for each in _dump_seeds()[:1])], {}, {})


def _ras(body: bytes) -> object:
    return hang_verdict([], {}, {}, [read_ras(body, "ras.json")])


def _dump_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        job = Job(4, pipeline=True, fault=Fault(kind="lock", ranks=(1,), step=1))
        job.run()
        job.write(Path(folder), as_json=False, only_active=False)
        pickles = [each.read_bytes() for each in sorted(Path(folder).iterdir())]
        job.write(Path(folder), as_json=True, only_active=True)
        return [*pickles, *(each.read_bytes() for each in sorted(Path(folder).iterdir()))]


def _operations(body: bytes) -> object:
    return straggler_verdict(*read_operations(body, "operations"))


def _operation_seeds() -> list[bytes]:
    table = ParallelJob(copies=2, stages=2, batches=2, steps=3).csv()
    files = sorted((DATA / "stragglers").glob("*.parquet"))
    return [table, b'{"rank": 0, "step": 1, "op": "a", "start": 0, "end": 1}\n', *(each.read_bytes() for each in files)]


def _kineto_seeds() -> list[bytes]:
    return sorted((real_text(name) for name in real_names()), key=len)[:4]


def _nsight_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        return [
            steps(Path(folder) / f"{number}.sqlite", schema, count=1).write().read_bytes()
            for number, schema in enumerate(SCHEMAS.values())
        ]


def _database(body: bytes) -> object:
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        Path(file.name).write_bytes(body)
        if not is_database(Path(file.name)):
            return None
        runs = database_runs(Path(file.name))
        return [delivered(read_database_run(Path(file.name), info.identity)) for info in runs[:3]]


class _Answers:
    """A PromQL service that answers every question with the same document."""

    place = "http://service"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def get(self, path: str, query: Any) -> Any:
        """Return the answer."""
        del path, query
        return self._answer


def _prometheus(answer: Any) -> object:
    return delivered(read_job(_Answers(answer), "job", "", QueryRange(AT, AT + 600.0, 15.0)))


_SERIES = [{"metric": {"Hostname": "n1", "instance": "n1:9400", "gpu": "0", "mode": "idle", "cpu": "0"}}]
PROM = {"status": "success", "data": {"resultType": "matrix", "result": [{**_SERIES[0], "values": [[AT, "40"]]}]}}
LINES = (
    b"{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': 0.1}\nEpoch 1/3 loss: 0.5 acc=0.2\n"
    b"[3]\ttrain-rmse:0.5\tvalidation-rmse:0.6\nstep 10: loss=2.0 | 12 it/s\n"
)
TABLE = b"time,gpu0,loss\n2026-01-01 00:00:00,40,1.5\n2026-01-01 00:00:05,41,1.25\n"
MAPPING = b'{"time": {"column": "time", "unit": "text"}, "series": {"gpu0": "gpu0/GPUUtilization"}, "step": "loss"}'
EVENT = {
    "source": "aws.s3",
    "time": "2026-11-21T08:01:00Z",
    "detail": {
        "bucket": {"name": "profiles"},
        "object": {"key": "job/profiler-output/system/incremental/2026112108/1795248000.algo-1.json"},
    },
}
QUEUED = {"Records": [{"messageId": "m", "body": json.dumps(EVENT), "attributes": {"ApproximateReceiveCount": "1"}}]}
JOB_FILE = {"schema_version": 1, "name": "job", "status": "InProgress", "instance_count": 4, "started_at": 1795248000}
JOB_FILE |= {"settings": {"muted": "all"}, "tags": {"a": "b"}, "instance_type": "ml.p4d.24xlarge"}


def _table(body: bytes) -> object:
    mapping, _, rows = body.partition(b"\x1e")
    return delivered(read_table("t.csv", rows.decode(errors="replace").splitlines(), read_mapping("m", mapping), "t"))


def _scalars(body: bytes) -> object:
    return read_scalars(MemoryFiles({"events": body}), "events")


def _log(body: bytes) -> object:
    return ScalarLines().read([(AT, line) for line in body.decode(errors="replace").splitlines()])


def _s3(body: bytes) -> object:
    jobs, refusals = sort_messages([Message("m", body.decode(errors="replace"))], FAMILIES)
    unforeseen = [refusal.reason for refusal in refusals if refusal.is_delivered_again]
    assert not unforeseen, unforeseen
    return jobs


def _run_object(event: Any) -> object:
    found = written_object(event)
    return None if found is None else run_file_key(found[1])


def _hook(part: str) -> list[bytes]:
    writer = HookWriter().collections({"losses": (["loss"], ["^l"])})
    files = writer.step(0, {"loss": 1.0, "weight": np.ones((2, 3), np.float32)}, shapes={"loss": (1,)}).files
    return [body for name, body in files.items() if name.startswith(part)]


def _events(suffix: str) -> list[bytes]:
    return [each.body for each in uploads() if suffix in each.key][:2]


# Each reads what somebody else wrote.
TARGETS = (
    Target("kernel trace, Chrome", _kineto_seeds, partial(_trace, "trace.json")),
    Target(
        "kernel trace, XPlane",
        lambda: [xplanes.real_text(each) for each in xplanes.real_names()][:2],
        partial(_trace, "host.xplane.pb"),
    ),
    Target("memory snapshot", _snapshot_seeds, _snapshot),
    Target("plain pickle", lambda: _snapshot_seeds()[:-1], read_plain, (PickleError,)),
    Target("memory timeline", lambda: [raw(EVENTS), plain(EVENTS)], _timeline),
    Target("dump of the flight recorder", _dump_seeds, _hang_dump),
    Target("table of operations", _operation_seeds, _operations),
    Target(
        "answer of NCCL RAS", lambda: [answer(communicator(range(4), behind={1: 1}, missing={3: (True, True)}))], _ras
    ),
    Target(
        "stacks",
        lambda: [b'Thread 1 (idle): "MainThread"\n    f (a.py:1)\n', _SPY],
        partial(main_thread, name="stack_1"),
    ),
    Target("kernel trace, Nsight", _nsight_seeds, partial(_trace, "report.sqlite")),
    Target("event file", lambda: [file.read_bytes() for file in (DATA / "event_files").glob("events*")], _scalars),
    Target("debug-output, index", lambda: _hook("index"), partial(decode_index, 0, "worker_0")),
    Target("debug-output, collections", lambda: _hook("collections"), partial(decode_collections, "worker_0")),
    Target("debug-output, events", lambda: _hook("events"), _scalars),
    Target(
        "trainer_state.json",
        documents({"log_history": [{"loss": 1.5, "step": 10, "epoch": 0.1}], "global_step": 10}),
        partial(read_trainer_state, "trainer_state.json"),
    ),
    Target("metrics.csv", lambda: [b"epoch,step,train_loss\n0,10,1.5\n0,20,1.25\n"], partial(read_history, "m.csv")),
    Target("train.log", lambda: [b"step 1 | loss: 0.5\nstep 2 | loss: 0.4\n"], partial(read_history, "train.log")),
    Target(
        "metrics.jsonl",
        lambda: [b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": NaN}\n'],
        partial(read_history, "m.jsonl"),
    ),
    Target("log lines", lambda: [LINES], _log),
    Target(
        "W&B run",
        lambda: unpacked("wandb/run-recorded.wandb.xz"),
        lambda body: delivered(read_run_file("run.wandb", io.BytesIO(body))),
    ),
    Target("MLflow database", lambda: unpacked("mlflow/mlflow.db.xz"), _database),
    Target("PromQL answer", documents(PROM), of_answer(_prometheus)),
    Target("table", lambda: [MAPPING + b"\x1e" + TABLE], _table),
    Target(
        "nvidia-smi",
        lambda: [b"timestamp, index, utilization.gpu [%]\n2027/01/15 08:00:00.000, 0, 5 %\n"],
        lambda body: delivered(read_nvidia_smi("n", body.decode(errors="replace").splitlines(keepends=True), "n")),
    ),
    Target(
        "neuron-monitor",
        lambda: [report(40.0) + report(50.0)],
        lambda body: delivered(read_neuron_monitor("n", body.splitlines(keepends=True), AT)),
    ),
    Target(
        "Dynolog",
        lambda: [logged(0.0, {"cpu_util": 40.0, "gpu_util": 30}) + logged(9.0, {"cpu_util": 4.0})],
        lambda body: delivered(read_dynolog("d", body.splitlines(keepends=True))),
    ),
    Target(
        "system metrics",
        lambda: _events("system/incremental"),
        lambda body: read_system_object("k", body, node="algo-1", minute=1_795_248_000),
    ),
    Target(
        "framework events",
        lambda: _events("pevents"),
        lambda body: read_framework_object("k", body, process="algo-1-70", end_us=1_795_248_100_000_000),
    ),
    Target("job.json", documents(JOB_FILE), lambda body: read_job_file("k", body, "job")),
    Target(
        "price table",
        lambda: [Path("rules_layer/trainguard/pricing/prices.json").read_bytes()],
        partial(read_prices, "prices.json"),
    ),
    Target(
        "settings document",
        documents({"rules": {"LowGPUUtilization": {"window": 20}}, "muted": ["all"]}),
        partial(read_document, "d"),
    ),
    Target("S3 event", documents(EVENT), _s3),
    Target("task", lambda: [encode_task(StreamTask("job", "algo-1", "system", "flush", 12.5)).encode()], _s3),
    Target("event of a run's file", documents(EVENT), of_document(_run_object)),
    *SOURCE_TARGETS,
    *STORED_TARGETS,
    *FUNCTION_TARGETS,
)
