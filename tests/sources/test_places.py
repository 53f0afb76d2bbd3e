"""Run files where people have them: a file, the folder of a run, a folder of runs."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import trainguard
from tests.support.wandb_files import ended, history, run, run_file, stats
from trainguard.cli.main import app
from trainguard.local.places import reader_of

AT = 1_800_000_000.0


def starved(minutes: int = 40) -> bytes:
    """Return a run whose one GPU idles; its loss falls."""
    records = [run("Starved run"), ended(0)]
    for number in range(4 * minutes):
        at = AT + 15.0 * number
        records += [stats(at, {"gpu.0.gpu": 3.0}), history(number, at, {"loss": 2.0 / (1 + number)})]
    return run_file(records)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=80).map(lambda text: text.encode("utf-16"))),
    st.sampled_from([".csv", ".log", ".json", ".jsonl", ".txt", ".ndjson"]),
)
@example(b"a,b\r1,2\r", ".csv")
@example("timestamp, index\r\n".encode("utf-16"), ".csv")
@example(b'"' * 200, ".csv")
@example(b"a" * 200_000, ".csv")
def test_no_bytes_end_the_search_for_runs(tmp_path: Path, body: bytes, suffix: str) -> None:
    file = tmp_path / f"file{suffix}"
    file.write_bytes(body)
    assert reader_of(file) is None or b"utilization.gpu" in body or suffix != ".csv"


def analyzed(*words: object) -> tuple[int, dict[str, object], str]:
    result = CliRunner().invoke(app, ["analyze", *map(str, words), "--json"])
    return result.exit_code, json.loads(result.stdout) if result.exit_code in {0, 1} else {}, result.stderr


@pytest.mark.parametrize("place", ["wandb/run-20260101_000000-a/run-a.wandb", "wandb/run-20260101_000000-a", "."])
def test_a_run_is_found_and_judged(place: str, tmp_path: Path) -> None:
    file = tmp_path / "wandb" / "run-20260101_000000-a" / "run-a.wandb"
    file.parent.mkdir(parents=True)
    file.write_bytes(starved())
    code, said, _ = analyzed(tmp_path / place, "--out", tmp_path / "out", "--fail-on-fire")
    assert code == 1
    assert "LowGPUUtilization" in said["fired"]  # type: ignore[operator]
    report = json.loads((tmp_path / "out" / "profiler-reports" / "LowGPUUtilization.json").read_bytes())
    assert report
    assert any("each 15.0 s" in str(note) for note in said["notes"])  # type: ignore[attr-defined]
    assert any("no utilization of CPU cores" in str(note) for note in said["notes"])  # type: ignore[attr-defined]


def test_scalars_alone_are_judged(tmp_path: Path) -> None:
    file = tmp_path / "run-b.wandb"
    rows = (history(number, AT + number, {"train/loss": float("nan") if number > 5 else 1.0}) for number in range(9))
    file.write_bytes(run_file([run(), *rows]))
    code, said, _ = analyzed(file, "--out", tmp_path / "out", "--fail-on-fire")
    assert code == 1
    assert "training/ExplodingTensor" in said["fired"]  # type: ignore[operator]


def test_the_python_api_reads_a_run(tmp_path: Path) -> None:
    file = tmp_path / "run-c.wandb"
    file.write_bytes(starved())
    report = trainguard.analyze(file)
    assert "LowGPUUtilization" in report.findings["rule"]
    assert any("Weights & Biases" in note for note in report.notes)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"run-a.wandb": b"PK\x03\x04 an archive"}, "expected a run file of W&B"),
        ({"run-a.wandb": run_file([run()])}, "without a system metric that is read: gpu.<n>"),
        ({"run-a.txt": b"x"}, "no profile"),
    ],
)
def test_what_is_no_run_is_refused(files: dict[str, bytes], said: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    code, _, error = analyzed(tmp_path, "--out", tmp_path / "out")
    assert code == 2
    assert said in error


def test_damage_is_no_all_clear(tmp_path: Path) -> None:
    whole = bytearray(starved())
    whole[200] ^= 1
    (tmp_path / "run-a.wandb").write_bytes(bytes(whole))
    code, said, _ = analyzed(tmp_path, "--out", tmp_path / "out")
    assert code == 0
    assert said["unread"] == {"a block of the file does not agree with its checksum": 1}
