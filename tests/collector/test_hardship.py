"""The collector never harms the training: it is starved, stopped, left without disk, memory or files, and killed."""

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.collector.runs import Runs, is_running, until
from trainguard.formats.profile.system import read_system_object


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(tmp_path)
    yield runs
    for process in runs.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def tally(runs: Runs) -> Counter[str]:
    """Return what the engine counts of all that was written."""
    found: Counter[str] = Counter()
    for path in (runs.output / "run-1/profiler-output").rglob("*.json"):
        minute = int(path.name.split(".")[0])
        found.update(read_system_object(path.name, path.read_bytes(), node="node-1", minute=minute).tally)
    return found


def parts(runs: Runs) -> list[Path]:
    return list(runs.spool.glob("*/*.part"))


def test_starved_sampler_counts_missed_samples_without_bad_lines(
    runs: Runs,
) -> None:
    process = runs.wrap("bash", "-c", "read line; exit 4")
    sampler = runs.sampler(process)
    until(lambda: bool(parts(runs)))
    sampler.suspend()
    time.sleep(1.5)
    sampler.resume()
    size = parts(runs)[0].stat().st_size
    until(lambda: bool(parts(runs)) and parts(runs)[0].stat().st_size > size)
    process.communicate("go\n")
    assert process.returncode == 4
    assert int(str(runs.status["missed_samples"])) >= 10
    assert set(tally(runs)) == {"gzip_objects", "lines"}


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param("ulimit -f 8", id="disk"),
        pytest.param("ulimit -f 0", id="no-disk-at-all"),
        pytest.param("ulimit -n 10", id="files"),
        pytest.param("ulimit -v 60000", id="memory"),
    ],
)
def test_exhausted_resource_leaves_the_command_unaffected(runs: Runs, limit: str) -> None:
    runs.environment["TRAINGUARD_FINISH_S"] = "1"
    python = f"exec {runs.executable} -m trainguard_collector -- bash -c 'sleep 2; echo done; exit 6'"
    process = runs.shell(f"{limit}; {python}")
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("done\n", 6)


def test_full_disk_loss_is_counted_and_lines_stay_whole(
    runs: Runs,
) -> None:
    process = runs.wrap("bash", "-c", "read line; exit 0")
    sampler = runs.sampler(process)
    until(lambda: bool(parts(runs)))
    full = parts(runs)[0].stat().st_size + 700
    sampler.rlimit(psutil.RLIMIT_FSIZE, (full, full * 1_000))
    time.sleep(1.5)
    assert parts(runs)[0].stat().st_size <= full
    sampler.rlimit(psutil.RLIMIT_FSIZE, (full * 1_000, full * 1_000))
    time.sleep(0.5)
    process.communicate("go\n")
    assert process.returncode == 0
    assert int(str(runs.status["lost_snapshots"])) >= 5
    assert set(tally(runs)) == {"gzip_objects", "lines"}


def test_killed_script_ends_its_sampler_and_fails_the_job(runs: Runs, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time, trainguard_collector as c\nprint(c.start(), flush=True)\ntime.sleep(60)\n")
    process = runs.python(str(script))
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    (sampler,) = psutil.Process(process.pid).children()
    until(lambda: bool(parts(runs)))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: not is_running(sampler))
    assert runs.job_status == "Failed"
    assert json.loads((runs.output / "run-1/job.json").read_bytes())["ended_at"] > 0


def test_repeatedly_dying_sampler_is_abandoned(
    runs: Runs,
) -> None:
    process = runs.wrap("bash", "-c", "read line; exit 0")
    for _ in range(4):
        sampler = runs.sampler(process)
        sampler.kill()
        until(lambda gone=sampler: not gone.is_running())  # type: ignore[misc]
    time.sleep(0.3)
    assert [child.name() for child in psutil.Process(process.pid).children()] == ["bash"]
    process.communicate("go\n")
    assert process.returncode == 0
