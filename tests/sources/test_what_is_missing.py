"""What a source lacks is said and never taken for zero, and the word for programs is as sure as the report."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.wandb_files import ended, history, run, run_file, stats
from trainguard.cli.main import app
from trainguard.core.errors import UnreadableRunError
from trainguard.local.fleet import evaluated, judged_jobs
from trainguard.local.pool import WorkerPool
from trainguard.local.runs import find_runs, open_job
from trainguard.local.settings import GivenSettings
from trainguard.report.job_verdict import verdict_of
from trainguard.report.verdict_document import JobVerdict

AT = 1_800_000_000.0
Values = Callable[[int], Mapping[str, float]]


def recorded(folder: Path, values: Values, *, minutes: int = 40, loss: bool = True) -> str:
    """Write a run of W&B that has ended, with a sample each 15 s; return its place."""
    records = [run("bert", at=AT)]
    for number in range(4 * minutes):
        records.append(stats(AT + 15 * number, values(number)))
        if loss:
            records.append(history(number, AT + 15 * number, {"loss": 2.0 / (1 + number)}))
    path = folder / "run-bert.wandb"
    path.write_bytes(run_file([*records, ended(0)]))
    return str(path)


def analyzed(place: str, out: Path) -> dict[str, object]:
    result = CliRunner().invoke(app, ["report", place, "--json", "--out", str(out)])
    assert result.exit_code == 0, result.output
    report: dict[str, object] = json.loads((out / "report.json").read_bytes())
    return report


def verdict(place: str) -> JobVerdict:
    judged, _ = evaluated(GivenSettings(), open_job(place))
    return verdict_of(judged.job, judged.rows, now=AT + 86_400.0)


@pytest.mark.parametrize(
    ("values", "minutes", "level", "said", "certainty"),
    [
        (lambda _: {"gpu.0.gpu": 97.0}, 40, "healthy", "healthy", "high"),
        (lambda _: {"gpu.0.gpu": 0.0}, 10, "unknown", "unknown", None),
        (lambda _: {"gpu.0.gpu": 0.1}, 17, "unknown", "unknown", None),
        (lambda _: {"gpu.0.gpu": 0.0}, 40, "unhealthy", "wasted", "high"),
        (lambda _: {"cpu": 30.0, "memory_percent": 40.0}, 40, "healthy", "healthy", "medium"),
    ],
    ids=["busy", "short", "17 minutes at 0.1 %", "never used", "no GPU metrics"],
)
def test_report_and_queried_verdict_have_the_same_certainty(
    values: Values, minutes: int, level: str, said: str, certainty: str | None, tmp_path: Path
) -> None:
    place = recorded(tmp_path, values, minutes=minutes)
    report = analyzed(place, tmp_path / "out")["verdict"]
    assert isinstance(report, dict)
    found = verdict(place)
    assert (report["level"], found.verdict, found.certainty) == (level, said, certainty)
    if certainty == "medium":
        assert "No rule has judged whether GPUs work: no utilization of GPUs was recorded" in str(found.certainty_why)


def test_fleet_without_gpu_metrics_reports_no_waste(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        recorded(tmp_path / name, lambda _: {"cpu": 30.0, "memory_percent": 40.0}, loss=False)
    page = tmp_path / "page.html"
    result = CliRunner().invoke(
        app, ["report", str(tmp_path), "--json", "--instance-type", "ml.p3.2xlarge", "--out", str(page)]
    )
    assert result.exit_code == 0
    for job in json.loads(page.with_suffix(".json").read_bytes())["jobs"]:
        assert (job["wasted_share"], job["lost"], job["report"]) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run-z.wandb", b":W&B\xe1\xbe\x00" + bytes((31 * number) % 251 for number in range(100_000))),
        ("monitor.jsonl", b'{"neuron_runtime_data":' + b"[" * 200_000 + b"\n"),
    ],
)
def test_unreadable_file_is_counted_with_its_damage_as_reason(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableRunError, match="nothing of it could be read") as raised:
        open_job(str(tmp_path / name))
    with WorkerPool(1) as pool:
        (judged,) = judged_jobs(str(tmp_path), find_runs(str(tmp_path)).runs, GivenSettings(), pool)
    assert judged.unread == raised.value.parts > 0
    assert "nothing of it could be read" in judged.rows[0].finding.reason
