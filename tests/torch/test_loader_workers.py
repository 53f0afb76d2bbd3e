"""Loaders of torch whose workers record: batches, settings and errors stay as they are; the engine reads the times."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from tests.torch.conftest import Record
from trainguard.formats.profile.columns import FrameworkEvents, read_framework_object
from trainguard.local.api import analyze
from trainguard.rules.dataloader.series import LoaderState

pytestmark = pytest.mark.torch
Send = Callable[[], Path]


class Numbers(Dataset[int]):
    shift = 0

    def __init__(self, raises_at: int | None = None) -> None:
        self.raises_at = raises_at

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == self.raises_at:
            raise KeyError("sample")
        time.sleep(0.005)
        return index + self.shift


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info: Any = get_worker_info()
        for number in range(info.id, 8, info.num_workers):
            time.sleep(0.005)
            yield number


def shift_all(worker: int) -> None:
    info: Any = get_worker_info()
    info.dataset.shift = 100 * (worker + 1)


def read(job: Path) -> list[FrameworkEvents]:
    return [
        read_framework_object(path.name, path.read_bytes(), process=path.name.split("_")[1], end_us=2**52)
        for path in sorted((job / "profiler-output").rglob("*w-node-1_pythontimeline.json"))
    ]


def rows(job: Path) -> list[tuple[int, int]]:
    """Return worker and batch of each fetch; no event of any object was bad."""
    found = []
    for path, events in zip(sorted(job.rglob("*w-node-1_pythontimeline.json")), read(job), strict=True):
        assert not events.tally["bad_events"]
        assert events.table.durations_us.min() >= 5_000
        lines = [
            json.loads(line.rstrip(","))
            for line in gzip.decompress(path.read_bytes()).decode().splitlines()
            if '"ph":"X"' in line
        ]
        found += [(line["args"]["worker_id"], line["args"]["batch"]) for line in lines]
    return sorted(found)


def numbers(loader: Any) -> list[int]:
    return sorted(number for batch in loader for number in batch.tolist())


@pytest.mark.parametrize(
    ("dataset", "settings", "expected", "epochs"),
    [
        (Numbers(), {"num_workers": 2, "worker_init_fn": shift_all}, [100, 101, 104, 105, 202, 203, 206, 207], 2),
        (Numbers(), {"num_workers": 2, "persistent_workers": True}, list(range(8)), 2),
        (Stream(), {"num_workers": 2}, list(range(8)), 1),
        (
            Numbers(),
            {"num_workers": 1, "multiprocessing_context": "spawn", "worker_init_fn": shift_all},
            list(range(100, 108)),
            1,
        ),
    ],
    ids=["forked", "persistent", "iterable", "spawned"],
)
def test_wrapped_loader_with_workers_records_each_fetch(
    dataset: Any, settings: dict[str, Any], expected: list[int], epochs: int, record: Record, send: Send
) -> None:
    recorder = record()
    loader = DataLoader(dataset, batch_size=2, **settings)
    wrapped = recorder.wrap(loader)
    for _ in range(epochs):
        assert numbers(wrapped) == expected
    assert loader.worker_init_fn is settings.get("worker_init_fn")
    del wrapped, loader  # persistent workers end
    recorder.close()
    assert recorder.faults.newest == {}
    workers = settings["num_workers"]
    per_epoch = [(worker, batch) for worker in range(workers) for batch in range(4 // workers)]
    if settings.get("persistent_workers"):
        per_epoch = [(worker, batch) for worker in range(workers) for batch in range(epochs * 4 // workers)]
        epochs = 1
    assert rows(send()) == sorted(per_epoch * epochs)


def test_wrapped_loader_raises_what_its_dataset_or_init_raises(record: Record, send: Send) -> None:
    def fails(_: int) -> None:
        raise LookupError("no shard")

    recorder = record()
    with pytest.raises(KeyError, match="sample"):
        # The last batch: whether the worker fetches one behind a fault depends on when it is ended.
        list(recorder.wrap(DataLoader(Numbers(raises_at=6), batch_size=2, num_workers=1)))
    with pytest.raises(LookupError, match="no shard"):
        list(recorder.wrap(DataLoader(Numbers(), num_workers=1, worker_init_fn=fails)))
    assert numbers(recorder.wrap(DataLoader(Numbers()))) == list(range(8))
    recorder.close()
    assert rows(send()) == [(0, 0), (0, 1), (0, 2)]


def test_workers_of_automatically_timed_loaders_are_recorded(record: Record, send: Send) -> None:
    recorder = record()
    recorder.time_loaders()
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1)
    assert numbers(loader) == list(range(8))
    recorder.close()
    assert numbers(loader) == list(range(8))
    job = send()
    assert rows(job) == [(0, 0), (0, 1)]
    assert analyze(job, time_lines=False).notes == ()
    state = LoaderState()
    for events in read(job):
        state.fold(events)
    assert (state.fetch_us.total, state.worker_us.total) == (2, 0)
    assert state.fetch_us.quantiles((0.5,))[0] >= 20_000
