"""The recorder of a training process, read by the engine: steps, phases, waits for data, in every kind of trouble."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from trainguard.formats.profile.columns import FrameworkEvents, read_framework_object
from trainguard.formats.profile.keys import FrameworkKey, parse_key
from trainguard_collector.objects import Handover, TimelineFile, objects_folder
from trainguard_collector.outgoing import Outgoing, timeline_object
from trainguard_collector.recorder.harmless import Faults
from trainguard_collector.recorder.process import find_rank
from trainguard_collector.recorder.recorder import Recorder
from trainguard_collector.recorder.timeline import MOST_LABELS, MOST_WAITING, EventLog
from trainguard_collector.spool import TENSORS

Record = Callable[[], Recorder]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return objects_folder(str(tmp_path / "spool"), "run-1", "node-1")


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Record]:
    for name, value in {
        "TRAINGUARD_OUTPUT": str(tmp_path / "output"),
        "TRAINGUARD_SPOOL": str(tmp_path / "spool"),
        "TRAINGUARD_JOB": "run-1",
        "TRAINGUARD_NODE": "node-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TRAINGUARD_COLLECTOR_SETTINGS", raising=False)
    started: list[Recorder] = []

    def make() -> Recorder:
        started.append(Recorder(with_sampler=False))
        return started[-1]

    yield make
    for each in started:
        each.close()


def sent(folder: Path) -> list[tuple[str, bytes]]:
    """Return the objects that the sampler makes of what was handed over."""
    outgoing = Outgoing(folder, "run-1", "node-1")
    outgoing.prepare(final=True)
    assert outgoing.faults == {}
    found = [(key, path.read_bytes()) for key, path in outgoing.ready()]
    for _, path in outgoing.ready():
        path.unlink()
    return found


def timelines(folder: Path) -> list[FrameworkEvents]:
    found = []
    for key, body in sent(folder):
        if key.endswith("_pythontimeline.json"):
            parsed = parse_key(key)
            assert isinstance(parsed, FrameworkKey)
            process = f"{parsed.node}-{parsed.process}"
            found.append(read_framework_object(key, body, process=process, end_us=parsed.end_us))
    return found


def phases_of(events: FrameworkEvents) -> Counter[str]:
    return Counter(events.table.phases[row] for row in events.table.phase_index.tolist())


class Loader(list[int]):
    num_workers, pin_memory = 3, True


def test_engine_reads_steps_phases_and_waits_of_a_loop(record: Record, folder: Path) -> None:
    recorder = record()
    for _ in recorder.wrap(Loader(range(4))):
        with recorder.step():
            for phase in ("forward", "backward", "optimizer"):
                with recorder.phase(phase):
                    pass
    with recorder.phase("evaluation"), recorder.step():
        pass
    with recorder.phase("checkpoint"):
        pass
    recorder.close()
    assert recorder.faults.newest == {}
    (events,) = timelines(folder)
    assert events.tally.keys() == {"gzip_objects", "events"}
    assert {batch.mode: batch.numbers for batch in events.steps} == {
        "Step:ModeKeys.EVAL": ("0",),
        "Step:ModeKeys.TRAIN": ("0", "1", "2", "3"),
    }
    assert phases_of(events) == {
        "DataLoaderIterInitialize": 1,
        "DataLoaderIter": 4,
        "Forward-SubModuleInternal": 4,
        "Backward-SubModuleInternal": 4,
        "Optimizer": 4,
        "Step:ModeKeys.TRAIN": 4,
        "Step:ModeKeys.EVAL": 1,
        "Evaluation": 1,
        "Checkpoint": 1,
    }
    assert [(each.num_workers, each.pin_memory) for each in events.loaders] == [(3, True)]


def test_given_times_when_read_then_they_are_those_of_the_clock(record: Record, folder: Path) -> None:
    recorder = record()
    before_us = time.time_ns() // 1_000
    with recorder.step():
        time.sleep(0.02)
    after_us = time.time_ns() // 1_000
    recorder.close()
    (events,) = timelines(folder)
    assert before_us - 1_000 <= int(events.table.starts_us[0]) <= after_us - 20_000
    assert 20_000 <= int(events.table.durations_us[0]) <= after_us - before_us + 1_000


def test_exception_of_the_script_passes_through_unchanged(record: Record, folder: Path) -> None:
    recorder = record()
    with pytest.raises(KeyError, match="batch"), recorder.phase("epoch"), recorder.step():
        raise KeyError("batch")
    with recorder.step():
        pass
    recorder.close()
    (events,) = timelines(folder)
    assert phases_of(events) == {"Step:ModeKeys.TRAIN": 2, "epoch": 1}


def test_raising_loader_raises_the_same_and_is_restored(record: Record) -> None:
    recorder = record()
    loader = Loader([1, 0])
    wrapped = recorder.wrap(loader)
    assert (len(wrapped), wrapped.num_workers, list(wrapped)) == (2, 3, [1, 0])
    assert list(recorder.wrap(x for x in (1, 2))) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        list(recorder.wrap(1 // each for each in loader))
    with pytest.raises(AttributeError):
        _ = wrapped.no_such_thing


def test_code_without_contexts_runs_the_same_if_recorded(record: Record, folder: Path) -> None:
    recorder = record()
    recorder.begin_step()
    recorder.begin_phase("forward")
    recorder.begin_phase("inner")
    recorder.end_phase("forward")
    recorder.end_phase("never begun")
    recorder.begin_step("eval")
    recorder.end_step()
    recorder.end_step()
    recorder.close()
    (events,) = timelines(folder)
    assert phases_of(events) == {
        "inner": 1,
        "Forward-SubModuleInternal": 1,
        "Step:ModeKeys.TRAIN": 1,
        "Step:ModeKeys.EVAL": 1,
    }


def test_given_no_output_when_used_then_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRAINGUARD_OUTPUT", raising=False)
    monkeypatch.setenv("TRAINGUARD_SPOOL", str(tmp_path))
    recorder, loader = Recorder(), Loader([1])
    assert recorder.wrap(loader) is loader
    with recorder.step(), recorder.phase("forward"):
        pass
    recorder.end_phase("forward")
    recorder.close()
    assert (recorder.faults.newest, list(tmp_path.iterdir())) == ({}, [])


def test_unusable_input_logs_one_line_and_the_script_goes_on(
    record: Record, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = record()
    for _ in range(3):
        with recorder.step("validating"):
            pass
    recorder.at_end.append(lambda *_: json.loads(""))
    with recorder.step():
        pass
    recorder.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "trainguard-collector: step: ValueError: mode is 'validating', expected one of TRAIN, EVAL, PREDICT, GLOBAL",
        "trainguard-collector: function: JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ]
    status = next(json.loads(body) for key, body in sent(folder) if key.endswith("recorder.json"))
    assert status["error_counts"] == {"step": 3, "function": 1}


def test_full_disk_counts_dropped_events(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    recorder = record()
    monkeypatch.setattr(TimelineFile, "append", full)
    for _ in range(5):
        with recorder.step():
            pass
    recorder.close()
    assert recorder.log.dropped == 5
    assert "No space left" in recorder.faults.newest["timeline"]


def test_forked_process_writes_nothing(record: Record, folder: Path) -> None:
    recorder = record()
    with recorder.step():
        pass
    child = os.fork()
    if child == 0:
        for _ in recorder.wrap([1]):
            with recorder.step():
                pass
        recorder.close()
        os._exit(0)
    os.waitpid(child, 0)
    recorder.close()
    (events,) = timelines(folder)
    assert phases_of(events) == {"Step:ModeKeys.TRAIN": 1}


def test_events_during_sampler_reads_are_kept_exactly_once(record: Record, folder: Path) -> None:
    recorder, numbers = record(), []
    for round_number in range(6):
        for _ in range(5):
            with recorder.step():
                pass
        recorder.log.flush(time.monotonic_ns())
        if round_number % 2:
            for events in timelines(folder):
                numbers += [number for batch in events.steps for number in batch.numbers]
    recorder.close()
    for events in timelines(folder):
        numbers += [number for batch in events.steps for number in batch.numbers]
    assert numbers == [str(number) for number in range(30)]


def test_memory_stays_bounded_if_no_sampler_takes_events(tmp_path: Path) -> None:
    class Busy(TimelineFile):
        def append(self, lines: bytes) -> bool:
            return False

    log = EventLog(lambda header: Busy(Handover(tmp_path, 1_000), "7", header), Faults())
    for number in range(3 * MOST_WAITING):
        log.record((f"label {number}", "x", number, number, "", 0))
    log.flush(time.monotonic_ns())
    assert log.dropped >= 2 * MOST_WAITING
    assert len(log._labels) == MOST_LABELS + 1
    assert sum(map(len, log._lines)) < MOST_WAITING * 200


@pytest.mark.parametrize("cut", [1, 30, 400])
def test_timeline_of_a_killed_writer_is_used_as_far_as_whole(cut: int, record: Record, folder: Path) -> None:
    recorder = record()
    for _ in range(10):
        with recorder.step():
            pass
    recorder.log.flush(time.monotonic_ns())
    (path,) = folder.glob("*.timeline")
    path.write_bytes(path.read_bytes()[:-cut])
    (events,) = timelines(folder)
    assert events.tally.keys() == {"gzip_objects", "events"}
    assert len(events.table) == 10 - 1 - cut // 130


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"ts":1,"dur":1}', b"\xff" * 100 + b'"ts":1,"dur":1},\n'])
def test_invalid_timeline_is_left_out(body: bytes) -> None:
    with suppress(ValueError, KeyError, TypeError):
        assert timeline_object(body) is None


def test_foreign_files_are_named_and_block_nothing(record: Record, folder: Path) -> None:
    recorder = record()
    with recorder.step():
        pass
    recorder.close()
    (folder / "1.../../x.1.timeline").parent.mkdir(parents=True, exist_ok=True)
    (folder / "1.a_b.1.timeline").write_bytes(b"{}")
    (folder / f"2.worker_0.1{TENSORS}").write_bytes(b"no json\n")
    outgoing = Outgoing(folder, "run-1", "node-1")
    outgoing.prepare(final=True)
    assert outgoing.faults.keys() == {"timeline", "tensors"}
    assert [key for key, _ in outgoing.ready() if "pythontimeline" in key]
    assert not list(folder.glob("*.timeline"))


def test_next_sampler_ends_the_streams_of_a_killed_one(record: Record, folder: Path) -> None:
    recorder = record()
    with recorder.step():
        pass
    recorder.close()
    killed = Outgoing(folder, "run-1", "node-1")
    killed.prepare(final=True)
    for _, path in killed.ready():
        path.unlink()

    following = Outgoing(folder, "run-1", "node-1")
    assert following.streams == killed.streams == {"framework"}
    (folder / "other.stream").touch()
    assert Outgoing(folder, "run-1", "node-1").streams == {"framework"}

    following.close()
    assert not folder.exists()
    assert Outgoing(folder, "run-1", "node-1").streams == set()


def test_full_spool_drops_the_oldest_object(tmp_path: Path) -> None:
    handover = Handover(tmp_path, 1_000)
    for number in range(4):
        handover.put(f"key-{number}", b"x" * 300)
    names = [key for key, _ in Outgoing(tmp_path, "j", "n").ready()]
    assert (names, handover.dropped) == (["j/key-1", "j/key-2", "j/key-3"], 1)
    with pytest.raises(OSError, match="too many"):
        handover.put("large", b"x" * 1_001)


@pytest.mark.parametrize(
    ("environment", "process"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8"}, "rank3"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "rank0"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, "rank1"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "9", "WORLD_SIZE": "8"}, None),
        ({"RANK": "x", "WORLD_SIZE": "-1"}, None),
        ({}, None),
    ],
    ids=["torchrun", "mpi", "slurm", "one", "beyond", "no numbers", "nothing"],
)
def test_launcher_variables_name_the_process_by_its_rank(environment: dict[str, str], process: str | None) -> None:
    assert find_rank(environment).process == (process or str(os.getpid()))
