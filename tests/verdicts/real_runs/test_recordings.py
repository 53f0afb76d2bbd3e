"""The recorded runs, their labels, and the profiles made of them."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.verdicts.real_runs.labels import labels, statements
from tests.verdicts.real_runs.profile_writer import NODE, START, write_profile
from tests.verdicts.real_runs.recording import FOLDER, origins, read_recording
from trainguard.core.records import JobStatus
from trainguard.engine.jobs.job_file import read_job_file
from trainguard.formats.profile.system import read_system_object
from trainguard.rules.registry import OWN_NAMES

MOST_BYTES = 600_000


def test_each_file_has_an_origin_a_label_and_a_licence() -> None:
    files = sorted(file.name.removesuffix(".csv.xz") for file in (FOLDER / "data").iterdir())
    assert files == list(origins()) == list(labels())
    notice = (FOLDER / "NOTICE").read_text("utf-8")
    for origin in origins().values():
        assert origin.source in notice
        assert origin.licence in {"MIT", "Apache-2.0"}
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < MOST_BYTES


@pytest.mark.parametrize("run", origins())
def test_run_has_the_series_named_by_its_origin(run: str) -> None:
    recording = read_recording(run)
    origin = recording.origin
    kinds = [re.sub(r"\d", "", column) for column in recording.columns]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    assert counts == dict.fromkeys("uamw", origin.gpus) | {"c": origin.cores, "ram": 1, "net": 1}
    assert (np.diff(recording.times) >= 0.0).all()
    assert abs(recording.times[-1] - origin.seconds) < 0.1


@pytest.mark.parametrize("run", labels())
def test_shares_and_spans_of_a_label_match_the_samples(run: str) -> None:
    label, recording = labels()[run], read_recording(run)
    busy, activity = recording.of_gpus("u"), recording.of_gpus("a")
    assert label.unused_percent == pytest.approx(100.0 - busy.mean(), abs=0.1)
    assert label.waiting_percent == pytest.approx(100.0 * ((busy >= 90.0) & (activity < 2.0)).mean(), abs=0.1)
    for span in label.wasted:
        assert 0.0 <= span.start_s < span.end_s <= recording.origin.seconds + 1.0
        assert set(span.gpus) <= set(range(recording.origin.gpus))


@pytest.mark.parametrize("run", labels())
def test_no_gpu_works_in_a_span_labelled_idle(run: str) -> None:
    label, recording = labels()[run], read_recording(run)
    for span in label.wasted:
        inside = (recording.times > span.start_s) & (recording.times < span.end_s)
        for gpu in span.gpus if span.what.partition(":")[0] == "idle" else ():
            values = recording.columns[f"u{gpu}"][inside]
            assert np.nanmean(values) < 1.0, (span, gpu)


def test_labels_name_existing_rules_and_statements() -> None:
    for label in labels().values():
        assert set(label.first) <= set(OWN_NAMES)
        assert set(label.must_not) <= set(statements())
        assert label.first or label.outcome not in {"wasted", "unclear"}
        assert label.outcome != "healthy" or (label.first, label.wasted, label.fire) == ((), (), "no")
    for statement in statements().values():
        assert set(statement.rules) <= set(OWN_NAMES)
        assert statement.rules or statement.pattern or statement.healthy


@pytest.mark.parametrize("run", ["r03", "r34"])
def test_written_profile_is_read_with_every_sample_at_its_time(run: str, tmp_path: Path) -> None:
    recording = read_recording(run)
    job = write_profile(recording, tmp_path)
    read: dict[tuple[str, str], dict[float, float]] = {}
    for file in (job / "profiler-output" / "system" / "incremental").rglob("*.json"):
        minute = int(file.name.partition(".")[0])
        samples = read_system_object(file.name, file.read_bytes(), node=NODE, minute=minute)
        assert set(samples.tally) == {"lines"}
        for time, value, series in zip(samples.times, samples.values, samples.series, strict=True):
            of = samples.table[series]
            read.setdefault((of.kind, of.name), {})[round(time - START, 3)] = value
    gpu_names = [f"gpu{gpu}" for gpu in range(recording.origin.gpus)]
    expected = {("gpu", name): f"u{name[3:]}" for name in gpu_names}
    expected |= {("gpu_memory", name): f"a{name[3:]}" for name in gpu_names}
    expected |= {("cpu", f"cpu{core}"): f"c{core}" for core in range(recording.origin.cores)}
    expected |= {("network", "ReceiveBytesPerSecond"): "net", ("host_memory", "MemoryUsedPercent"): "ram"}
    for series, column in expected.items():
        values = recording.columns[column]
        given = dict(zip(recording.times[~np.isnan(values)].tolist(), values[~np.isnan(values)].tolist(), strict=True))
        assert read.pop(series, {}) == pytest.approx(given)
    assert read == {}


@pytest.mark.parametrize(
    ("run", "status"), [("r02", JobStatus.COMPLETED), ("r12", JobStatus.FAILED), ("r05", JobStatus.UNKNOWN)]
)
def test_job_file_of_a_written_run_says_how_it_ended(run: str, status: JobStatus, tmp_path: Path) -> None:
    job = write_profile(read_recording(run), tmp_path)
    told = read_job_file("job.json", (job / "job.json").read_bytes(), run)
    assert (told.status, told.started_at) == (status, START)
    assert told.ended_at == (None if status is JobStatus.UNKNOWN else START + origins()[run].seconds)
