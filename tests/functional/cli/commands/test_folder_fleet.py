"""`trainguard report FOLDER` of several runs: to a page and a document over all, and a report of each."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from tests.support.kernel_traces import real_profile
from tests.support.wandb_files import ended, run, run_file, stats
from trainguard.cli.main import app
from trainguard.core.errors import NoProfileError
from trainguard.kernels.document import KernelProfiles, encode_profiles
from trainguard.local.fleet import judged_jobs
from trainguard.local.pool import WorkerPool
from trainguard.local.runs import find_runs
from trainguard.local.settings import GivenSettings

AT = 1_800_000_000.0
HOUR_S = 3_600.0


def recorded(name: str, gpu: float, *, at: float = AT, hours: float = 1.0) -> bytes:
    """Return a run of one GPU at one utilization."""
    times = [at + 15.0 * number for number in range(int(240 * hours))]
    return run_file([run(name, at=at), ended(0), *(stats(each, {"gpu.0.gpu": gpu}) for each in times)])


def write(folder: Path, runs: dict[str, bytes]) -> None:
    for name, body in runs.items():
        file = folder / f"run-20260101_000000-{name}" / f"run-{name}.wandb"
        file.parent.mkdir(parents=True)
        file.write_bytes(body)


def fleet(folder: Path, *words: object) -> Result:
    return CliRunner().invoke(app, ["report", str(folder), *map(str, words)])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path / "wandb",
        {"idle": recorded("bert", 2.0), "busy": recorded("bert", 95.0), "long": recorded("gpt", 1.0, hours=3.0)},
    )
    return tmp_path / "wandb"


@pytest.fixture
def one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one short run, for tests of what lies beside it."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "wandb", {"idle": recorded("bert", 2.0, hours=0.75)})
    return tmp_path / "wandb"


def test_most_wasteful_run_is_first_with_its_place(
    folder: Path,
) -> None:
    result = fleet(folder, "--json", "--instance-type", "ml.p4d.24xlarge", "--fail-on-fire")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert [each["job"] for each in document["jobs"]] == ["gpt", "bert-2", "bert"]
    assert [each["fired"] for each in document["jobs"]] == [["LowGPUUtilization"], ["LowGPUUtilization"], []]
    assert document["jobs"][0]["place"] == "run-20260101_000000-long/run-long.wandb"
    assert document["jobs"][0]["link"].startswith("https://wandb.ai/team/project/runs/")
    assert document["jobs"][0]["lost"] == pytest.approx(3.0 * document["jobs"][1]["lost"], rel=0.05)
    assert (document["totals"]["jobs"], document["totals"]["judged"], document["totals"]["active"]) == (3, 3, 0)
    assert json.loads(Path("wandb-report/fleet.json").read_bytes()) == document
    page = Path("wandb-report/fleet.html").read_text("utf-8")
    assert "run-20260101_000000-long/run-long.wandb" in page
    assert "https://wandb.ai/team/project/runs/" in page


def test_several_processes_give_the_result_of_one(folder: Path) -> None:
    found = find_runs(str(folder)).runs
    with WorkerPool(2) as two, WorkerPool(0) as none:
        by_two, by_one = (list(judged_jobs(str(folder), found, GivenSettings(), pool)) for pool in (two, none))
    assert by_two == by_one


def test_profile_among_run_files_is_in_the_fleet(one_run: Path) -> None:
    line = {"Type": "gpu", "Name": "gpu0", "Dimension": "GPUUtilization", "NodeId": "algo-1", "Value": 1.0}
    for minute in range(40):
        at = AT + 60.0 * minute
        file = one_run / f"job-7/profiler-output/system/incremental/2027011508/{int(at)}.algo-1.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(json.dumps({**line, "Timestamp": at + 15.0 * each}) for each in range(4)))
    document = json.loads(fleet(one_run, "--json").stdout)
    assert {each["job"] for each in document["jobs"] if each["fired"]} == {"bert", "job-7"}


def test_invalid_run_file_says_why_and_others_are_judged(
    one_run: Path,
) -> None:
    write(one_run, {"foreign": b"no run at all"})
    document = json.loads(fleet(one_run, "--json").stdout)
    assert (document["totals"]["jobs"], document["totals"]["judged"]) == (2, 1)
    (unjudged,) = document["unjudged"]
    assert unjudged["job"] == "run-foreign"
    assert "foreign" in unjudged["summary"]


def test_damaged_run_without_findings_is_no_all_clear(one_run: Path) -> None:
    body = bytearray(recorded("damaged", 95.0))
    body[9_000:9_010] = b"\xff" * 10
    write(one_run, {"damaged": bytes(body)})
    document = json.loads(fleet(one_run, "--json").stdout)
    assert any("no all-clear: damaged." in note for note in document["notes"])
    alone = CliRunner().invoke(app, ["report", str(one_run / "run-20260101_000000-damaged"), "--json"])
    said: dict[str, Any] = json.loads(alone.stdout)
    assert said["healthy"] is False
    assert "could not be read" in said["verdict"]["health"]


def test_since_option_leaves_out_older_jobs(one_run: Path) -> None:
    write(one_run, {"old": recorded("old", 1.0, at=AT - 4_000 * HOUR_S * 24, hours=0.75)})
    document = json.loads(fleet(one_run, "--json", "--since", "365d").stdout)
    assert "old" not in {each["job"] for each in document["jobs"]}


def test_folder_without_jobs_says_what_a_job_would_be(tmp_path: Path) -> None:
    for name in ("model.pt", "best.pt", "config.yaml", "README"):
        (tmp_path / name).touch()
    with pytest.raises(NoProfileError, match=r"looked for .*tfevents.*\.wandb.*; met 2 \.pt, 1 "):
        find_runs(str(tmp_path))
    assert fleet(tmp_path / "none").exit_code == 2
    assert fleet(tmp_path, "--in-stack").exit_code == 2


def test_kernel_profiles_below_the_folder_are_listed(one_run: Path) -> None:
    write(one_run, {"busy": recorded("busy", 95.0, hours=0.75)})
    ranks = [msgspec.structs.replace(real_profile("resnet50_workers0"), trace="w0.pt.trace.json")]
    document = KernelProfiles(source=str(one_run / "traces"), ranks=ranks, unread={})
    for name, body in {
        "traces/kernels.json": encode_profiles(document),
        "traces/w0.pt.trace.json": b"",
        "new/w1.pt.trace.json": b"",
    }.items():
        (one_run / name).parent.mkdir(exist_ok=True)
        (one_run / name).write_bytes(body)
    document_of_fleet = json.loads(fleet(one_run, "--json").stdout)
    listed = {each["place"]: each for each in document_of_fleet["kernel_profiles"]}
    assert {place: each["status"] for place, each in listed.items()} == {"traces": "judged", "new": "not judged"}
    assert "LoaderBound" in listed["traces"]["findings"]
    assert "LoaderBound" in Path("wandb-report/fleet.html").read_text("utf-8")
