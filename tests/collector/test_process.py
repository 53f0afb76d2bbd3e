"""The collector as a process beside a command: exit codes, signals, and every way to be killed."""

import gzip
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.collector.runs import Runs, is_running, until
from trainguard.formats.profile.keys import SystemKey, parse_key
from trainguard.formats.profile.system import read_system_object
from trainguard.local.api import analyze


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(tmp_path)
    yield runs
    for process in runs.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_profile_of_a_wrapped_command_has_zero_bad_lines(runs: Runs) -> None:
    process = runs.wrap("bash", "-c", "sleep 2.5; echo done; exit 0")
    assert process.communicate()[0] == "done\n"
    assert process.returncode == 0
    assert (runs.job_status, runs.status["outcome"]) == ("Completed", "Completed")
    objects = list((runs.output / "run-1/profiler-output/system/incremental").rglob("*.json"))
    assert objects
    assert runs.status["sent_minutes"] == len(objects)
    for path in objects:
        key = parse_key(str(path.relative_to(runs.output)))
        assert isinstance(key, SystemKey)
        body = path.read_bytes()
        assert dict(read_system_object(path.name, body, node="node-1", minute=key.minute).tally) == {
            "gzip_objects": 1,
            "lines": gzip.decompress(body).count(b"\n"),
        }
    report = analyze(runs.output / "run-1", time_lines=False)
    assert (report.job, report.notes) == ("run-1", ())
    assert not list(runs.spool.glob("*"))


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -KILL $$", -9), ("kill -ABRT $$", -6)])
def test_failing_command_ends_the_same_way_if_wrapped(runs: Runs, script: str, code: int) -> None:
    process = runs.wrap("bash", "-c", script)
    assert (process.communicate(), process.returncode) == (("", ""), code)
    assert runs.job_status == "Failed"


def test_given_a_command_that_is_not_there_when_wrapped_then_127(runs: Runs) -> None:
    process = runs.wrap("no-such-command")
    assert "no-such-command: No such file" in process.communicate()[1]
    assert process.returncode == 127


def test_signal_is_passed_to_the_wrapped_command(runs: Runs) -> None:
    process = runs.wrap("bash", "-c", "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate()[0] == "caught\n"
    assert (process.returncode, runs.job_status) == (3, "Stopped")


def test_command_runs_alone_without_an_output(runs: Runs) -> None:
    del runs.environment["TRAINGUARD_OUTPUT"]
    process = runs.wrap("bash", "-c", "exit 5")
    assert (process.communicate(), process.returncode) == (("", ""), 5)
    assert not runs.spool.exists()


def test_unusable_settings_do_not_stop_the_command(runs: Runs) -> None:
    runs.environment["TRAINGUARD_INTERVAL_MS"] = "250"
    process = runs.wrap("bash", "-c", "exit 5")
    error = process.communicate()[1]
    assert process.returncode == 5
    assert "TRAINGUARD_INTERVAL_MS is 250, expected one of 100, 200" in error


def test_unwritable_output_does_not_stop_the_command(runs: Runs) -> None:
    runs.output.write_text("a file, not a folder")
    runs.environment["TRAINGUARD_FINISH_S"] = "1"
    process = runs.wrap("bash", "-c", f"until ls {runs.spool}/*/*.part; do sleep 0.05; done; exit 5")
    process.communicate()
    assert process.returncode == 5
    assert list((runs.spool / "run-1.node-1").glob("*.json"))


def test_killed_sampler_is_reaped_and_restarted(runs: Runs) -> None:
    process = runs.wrap("bash", "-c", "sleep 60")
    first = runs.sampler(process)
    job_file = runs.output / "run-1/job.json"
    until(job_file.exists)
    began = json.loads(job_file.read_bytes())["started_at"]
    job_file.unlink()
    first.kill()
    until(lambda: not first.is_running())
    assert is_running(runs.sampler(process))
    until(job_file.exists)
    assert json.loads(job_file.read_bytes())["started_at"] == began
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == -signal.SIGTERM


def test_wrapper_waits_for_a_stopped_sampler_up_to_its_limit(
    runs: Runs,
) -> None:
    runs.environment["TRAINGUARD_FINISH_S"] = "0"
    process = runs.wrap("sleep", "2")
    sampler = runs.sampler(process)
    sampler.suspend()
    began = time.monotonic()
    process.communicate()
    assert time.monotonic() - began < 12.0
    assert process.returncode == 0
    assert not sampler.is_running()


def test_killed_wrapper_ends_sampler_and_command(runs: Runs) -> None:
    process = runs.wrap("sleep", "60")
    sampler = runs.sampler(process)
    until(lambda: len(psutil.Process(process.pid).children()) == 2)
    family = psutil.Process(process.pid).children()
    until((runs.output / "run-1/job.json").exists)
    process.kill()
    process.communicate()
    assert sampler in family
    until(lambda: not any(is_running(each) for each in family))
    assert runs.job_status == "Failed"


def test_script_starts_one_collector_without_thread_or_workers(runs: Runs, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing, threading, time, trainguard_collector as c\n"
        "def work(): print('worker', c.start(), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    print(c.start(), c.start(), threading.active_count(), flush=True)\n"
        "    for way in ('fork', 'spawn'):\n"
        "        worker = multiprocessing.get_context(way).Process(target=work)\n"
        "        worker.start(); worker.join()\n"
        "    time.sleep(1)\n"
    )
    process = runs.python(str(script))
    out, error = process.communicate()
    assert (out, error, process.returncode) == ("True False 1\nworker False\nworker False\n", "", 0)
    assert runs.job_status == "Completed"


def test_raising_script_fails_the_job(runs: Runs) -> None:
    process = runs.python("-c", "import trainguard_collector as c; c.start(); raise SystemError('out of memory')")
    process.communicate()
    assert (process.returncode, runs.job_status) == (1, "Failed")


def test_user_module_named_like_a_library_is_not_imported(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "psutil.py").write_text("raise SystemExit('the wrong psutil')")
    (tmp_path / "train.py").write_text("import trainguard_collector as c, time\nprint(c.start())\ntime.sleep(1)\n")
    process = runs.python(str(tmp_path / "train.py"))
    assert process.communicate() == ("True\n", "")
    assert runs.job_status == "Completed"


@pytest.mark.parametrize(
    ("ending", "code", "status"),
    [
        ("sys.exit(3)", 3, "Failed"),
        ("sys.exit('no data')", 1, "Failed"),
        ("sys.exit()", 0, "Completed"),
        ("\ntry: sys.exit(3)\nexcept SystemExit: pass", 0, "Completed"),
        ("\ntry: sys.exit(0)\nexcept SystemExit: sys.exit(4)", 4, "Failed"),
        ("os._exit(0)", 0, "Failed"),  # nothing tells the sampler of it
    ],
)
def test_exit_code_of_a_script_decides_the_outcome(runs: Runs, ending: str, code: int, status: str) -> None:
    process = runs.python("-c", f"import os, sys, trainguard_collector as c; c.start(); {ending}")
    process.communicate()
    until(lambda: "outcome" in runs.status)
    assert (process.returncode, runs.job_status) == (code, status)


def test_ignored_arguments_of_a_running_sampler_are_named(
    runs: Runs,
) -> None:
    script = (
        "import trainguard_collector as c; print(c.start(interval_ms=1000, job='mine')); r = c.Recorder(job='mine')\n"
        "with r.step(): pass\n"
    )
    out, error = runs.wrap(runs.executable, "-c", script).communicate()
    assert out == "False\n"
    assert error.count("a sampler already runs for job 'run-1'") == 2
    assert "interval_ms=1000, job='mine' has no effect" in error
    assert list((runs.output / "run-1/profiler-output/framework").rglob("*_pythontimeline.json"))


def test_waiting_sampler_takes_arguments_of_the_script(runs: Runs) -> None:
    script = (
        "import time; from trainguard_collector.session import start, start_later\n"
        "print(start_later(60.0), start(interval_ms=1000, job='mine'), start(job='late')); time.sleep(1.2)\n"
    )
    out, error = runs.python("-c", script).communicate()
    assert out == "True True False\n"
    assert "already runs for job 'mine'" in error
    status = json.loads((runs.output / "mine/collector/node-1.status.json").read_bytes())
    assert (status["interval_ms"], status["outcome"]) == (1000, "Completed")
    assert not (runs.output / "run-1").exists()
