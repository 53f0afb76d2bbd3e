"""`trainguard gate` on tables, profiles, traces and runs of other tools, with its settings, files and exit codes."""

import csv
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tests.ledger.truth import KnownJob, start_up, train, write_steps, write_system
from tests.support.kernel_traces import TraceWriter
from tests.support.profile_folder import ProfileFolder
from tests.support.wandb_files import ended, history, run, run_file
from trainguard.cli.main import app


def gate(*words: object) -> Result:
    return CliRunner().invoke(app, ["gate", *map(str, words)])


def answer(candidate: Path, baselines: Sequence[Path], *words: object) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the document of a gate."""
    options = [word for each in baselines for word in ("--baseline", each)]
    result = gate(*options, candidate, "--json", *words)
    return result.exit_code, json.loads(result.stdout) if result.exit_code != 2 else {}


def rows(number: int, *, slower: float = 0.0, steps: int = 30) -> list[dict[str, float]]:
    drawn = np.random.default_rng(number)
    noise = 1.0 + 0.001 * drawn.standard_normal(steps + 1)
    times = (1.0 + slower) * noise[-1] * noise[:-1]
    return [{"step": 10 * step, "step_time_s": seconds} for step, seconds in enumerate(times.tolist())]


def write(file: Path, lines: Sequence[Mapping[str, object]]) -> Path:
    """Write a table in the form of its name."""
    if file.suffix == ".parquet":
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist([dict(each) for each in lines]), file)
    elif file.suffix == ".json":
        file.write_text(json.dumps(list(lines)))
    elif file.suffix == ".jsonl":
        file.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    else:
        with file.open("w", newline="") as opened:
            table = csv.DictWriter(opened, list(lines[0]), delimiter="\t" if file.suffix == ".tsv" else ",")
            table.writeheader()
            table.writerows(lines)
    return file


def tables(folder: Path, suffix: str = ".csv", **more: Any) -> list[Path]:
    return [write(folder / f"b{number}{suffix}", rows(number, **more)) for number in range(3)]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl", ".parquet"])
def test_tables_of_each_form(tmp_path: Path, suffix: str) -> None:
    baselines = tables(tmp_path, suffix)
    code, document = answer(write(tmp_path / f"c{suffix}", rows(7)), baselines)
    assert (code, document["verdict"]) == (0, "pass")
    assert document["metrics"][0]["steps"] == 29
    code, document = answer(write(tmp_path / f"s{suffix}", rows(7, slower=0.03)), baselines)
    assert (code, document["verdict"]) == (1, "regression")
    assert document["metrics"][0]["change"] == pytest.approx(0.03, abs=0.005)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl", ".parquet"])
def test_tables_of_one_row_with_throughput(tmp_path: Path, suffix: str) -> None:
    values = {"b0": 100.0, "b1": 100.3, "b2": 99.8, "c": 100.1, "s": 95.0}
    files = {
        name: write(tmp_path / f"{name}{suffix}", [{"step": 0, "throughput": value}]) for name, value in values.items()
    }
    baselines = [files[name] for name in ("b0", "b1", "b2")]
    assert answer(files["c"], baselines)[0] == 0
    assert answer(files["s"], baselines)[0] == 1
    code, document = answer(files["s"], baselines[:1], "--tolerance", "20%")
    assert (code, document["metrics"][0]["tolerance"]) == (0, 0.2)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("step,step_time_s\n", 3),
        ("step,step_time_s\n0,nan\n10,nan\n20,nan\n", 3),
        ("step,step_time_s\n0,1.0\n10,1.0\n", 3),
        ("step,step_time_s\n0,1.5\n10,1.5\n", 1),
        ("step,other\n0,1.0\n", 2),
        ("", 2),
        ("\x00\x01", 2),
    ],
)
def test_a_candidate_that_has_too_little_never_passes(tmp_path: Path, text: str, code: int) -> None:
    candidate = tmp_path / "c.csv"
    candidate.write_text(text)
    assert answer(candidate, tables(tmp_path))[0] == code


def test_a_loss_that_becomes_nan_is_a_regression(tmp_path: Path) -> None:
    for suffix in (".csv", ".jsonl"):
        lines = [{**row, "loss": 3.0 - 0.05 * place} for place, row in enumerate(rows(7))]
        good = write(tmp_path / f"good{suffix}", lines)
        lines[-1]["loss"] = float("nan")
        code, document = answer(write(tmp_path / f"nan{suffix}", lines), [good])
        assert (code, document["faults"][0]["kind"]) == (1, "not_finite")


def test_ranks_of_a_table_count_by_the_slowest(tmp_path: Path) -> None:
    def of_ranks(name: str, slow: float) -> Path:
        lines = [
            {**row, "step_time_s": row["step_time_s"] * (slow if rank == 2 else 1.0), "host": f"host-{rank}"}
            for row in rows(len(name))
            for rank in range(4)
        ]
        return write(tmp_path / name, lines)

    baselines = [of_ranks("first.csv", 1.0), of_ranks("second.csv", 1.0)]
    code, document = answer(of_ranks("slow.csv", 1.1), baselines)
    assert code == 1
    assert [each["text"] for each in document["warnings"] if each["kind"] == "slow_node" and "host-2" in each["text"]]


def test_a_candidate_that_a_pattern_finds_is_no_baseline(tmp_path: Path) -> None:
    tables(tmp_path)
    candidate = write(tmp_path / "b9.csv", rows(7, slower=0.03))
    code, document = answer(candidate, [tmp_path / "b*.csv"])
    assert (code, len(document["baselines"])) == (1, 3)
    assert [each["text"] for each in document["warnings"] if "b9.csv" in each["text"]]
    assert answer(candidate, [candidate])[0] == 0


def test_a_folder_of_several_tables_is_refused_with_what_to_name(tmp_path: Path) -> None:
    first = tables(tmp_path)[0]
    result = gate("--baseline", tmp_path, first)
    assert result.exit_code == 2
    assert "*.csv" in result.output


def test_an_answer_is_said_once(tmp_path: Path) -> None:
    baselines = [word for each in tables(tmp_path) for word in ("--baseline", each)]
    short = write(tmp_path / "short.csv", rows(7, steps=8))
    for words in ([], ["--markdown", "-"]):
        assert gate(*baselines, short, *words).stdout.count("may have crashed") == 1


def test_settings_of_a_file_and_of_options(tmp_path: Path) -> None:
    tables(tmp_path)
    candidate = write(tmp_path / "c.csv", rows(7, slower=0.03))
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.trainguard.gate]\nbaselines = ["b*.csv"]\ntolerance = { step_time = "10%", loss = 0.1 }\n')
    assert gate("--config", file, candidate).exit_code == 0
    assert gate("--config", file, candidate, "--tolerance", "step_time=2%").exit_code == 1
    other = tmp_path / "gate.toml"
    other.write_text('[gate]\nbaselines = ["b0.csv", "b1.csv"]\nmetrics = ["step_time"]\ntolerance = "2%"\n')
    assert gate("--config", other, candidate).exit_code == 1


@pytest.mark.parametrize(
    "text",
    ["gate = 1", "[gate]\nbaseline = []", "[gate]\nbaselines = 1", '[gate]\ntolerance = "x"', "[gate", "[tool.x]",
     "[gate]\nloss_step = -1", '[gate]\nmetrics = ["speed"]'],
)  # fmt: skip
def test_settings_that_cannot_be_used_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gate.toml"
    file.write_text(text)
    result = gate("--config", file, "--baseline", tables(tmp_path)[0], tmp_path / "b1.csv")
    assert result.exit_code == 2
    assert "gate.toml" in result.output


@pytest.mark.parametrize(
    "words",
    [
        ["b1.csv"],
        ["--baseline", "none.csv", "b1.csv"],
        ["--baseline", "none*.csv", "b1.csv"],
        ["--baseline", "b0.csv", "none.csv"],
        ["--baseline", "b0.csv"],
        ["--baseline", "b0.csv", "b1.csv", "--tolerance", "2"],
        ["--baseline", "b0.csv", "b1.csv", "--tolerance", "speed=2%"],
        ["--baseline", "b0.csv", "b1.csv", "--metric", "speed"],
        ["--baseline", "b0.csv", "b1.csv", "--json", "--markdown", "-"],
    ],
)
def test_words_that_cannot_be_used_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert gate(*words).exit_code == 2


def test_files_for_a_pull_request_and_its_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables(tmp_path)
    write(tmp_path / "s.csv", rows(7, slower=0.05))
    monkeypatch.chdir(tmp_path)
    words = ["--baseline", "b*.csv", "s.csv", "--junit", "out/gate.xml", "--markdown"]
    result = gate(*words, "out/gate.md")
    assert result.exit_code == 1
    assert 'failures="1"' in (tmp_path / "out/gate.xml").read_text()
    alone = gate(*words, "-")
    assert alone.exit_code == 1
    assert alone.stdout == (tmp_path / "out/gate.md").read_text()


def wandb(file: Path, number: int, *, slower: float = 0.0) -> Path:
    drawn = np.random.default_rng(number)
    values = [
        {"train/loss": 3.0 / (1 + step / 50), "train/tokens_per_second": 1e3 / (1 + slower) * (1 + 1e-3 * noise)}
        for step, noise in enumerate(drawn.standard_normal(60).tolist())
    ]
    lines = [history(step, 1.8e9 + step, each) for step, each in enumerate(values)]
    file.write_bytes(run_file([run(), *lines, ended(0)]))
    return file


def test_runs_of_other_tools(tmp_path: Path) -> None:
    baselines = [wandb(tmp_path / f"{number}.wandb", number) for number in range(3)]
    assert answer(wandb(tmp_path / "c.wandb", 7), baselines)[0] == 0
    code, document = answer(wandb(tmp_path / "s.wandb", 7, slower=0.04), baselines)
    assert code == 1
    assert {each["metric"]: each["verdict"] for each in document["metrics"]} == {
        "throughput": "regression",
        "loss": "pass",
    }


def job(folder: Path, *, wait_s: float) -> Path:
    known = KnownJob([start_up(30.0), train(240.0, step_s=1.6 + wait_s, wait_s=wait_s)], gpus=1)
    written = ProfileFolder(folder)
    write_system(known, 1, written)
    write_steps(known, 1, written)
    written.end()
    return written.path.parent


def test_a_profile_names_the_cause_by_its_ledger(tmp_path: Path) -> None:
    baselines = [job(tmp_path / name, wait_s=0.1) for name in ("one", "two")]
    code, document = answer(job(tmp_path / "slow", wait_s=0.5), baselines)
    assert code == 1
    assert document["cause"]["kind"] == "data"
    assert document["cause"]["after"] == pytest.approx(0.5, abs=0.1)


def traces(folder: Path, work_us: float) -> Path:
    made, step_us = TraceWriter(), work_us + 2_000.0
    for step in range(5):
        made.step(step, step_us * step, step_us)
        made.kernel("ampere_gemm_128", step_us * step + 500, work_us, launch=step_us * step + 10)
    folder.mkdir()
    (folder / "0.pt.trace.json").write_bytes(made.text())
    return folder


def test_kernel_traces_name_the_kernel_that_got_slower(tmp_path: Path) -> None:
    code, document = answer(traces(tmp_path / "new", 6_000.0), [traces(tmp_path / "old", 5_000.0)])
    assert code == 1
    assert document["cause"]["kind"] == "compute"
    assert document["operators"][0]["name"] == "ampere_gemm_128"
    assert document["operators"][0]["delta_ms"] == pytest.approx(1.0)
