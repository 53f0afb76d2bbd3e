"""The runs that are found at a place: in folders of trainers and tools, in a file, and below a prefix in S3."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from tests.families.training.test_scalars import events
from tests.functional.local.test_scalar_files import DYING, FALLING, table, trainer_state
from tests.support.wandb_files import ended, run, run_file, stats
from trainguard.aws.clients import Clients
from trainguard.core.errors import NoProfileError, ProfileSourceError, SeveralRunsError
from trainguard.local import runs as local_runs
from trainguard.local.api import analyze
from trainguard.local.fleet import folder_names
from trainguard.local.runs import find_runs, open_job

E = "events.out.tfevents.1.h"
GOOD, BAD = events(dict(FALLING), "loss"), events(dict(DYING), "loss")
HIGHER = {step: value + 0.1 for step, value in FALLING.items()}
LATER = {step + 400: value for step, value in FALLING.items()}
WANDB = run_file([run("bert"), ended(0), *(stats(1_800_000_000.0 + 15 * n, {"gpu.0.gpu": 90.0}) for n in range(9))])
SMI = b"timestamp, index, utilization.gpu [%]\n" + b"".join(
    b"2027-01-15 08:%02d:00, 0, 96 %%\n" % minute for minute in range(60)
)
Files = Mapping[str, bytes | str]


def write(folder: Path, files: Files) -> str:
    for name, body in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body if isinstance(body, bytes) else body.encode())
    return str(folder)


def found(place: str) -> list[str]:
    return [os.path.relpath(each.place, place) for each in find_runs(place).runs]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({f"a/{E}": GOOD, f"z/{E}": BAD}, ["a", "z"]),
        (
            {f"tensorboard-output/a/{E}": GOOD, f"tensorboard-output/b/train/{E}": BAD},
            ["tensorboard-output/a", "tensorboard-output/b/train"],
        ),
        ({"s/lr-0.1.csv": table(FALLING), "s/lr-0.01.csv": table(DYING)}, ["s/lr-0.01.csv", "s/lr-0.1.csv"]),
        ({"s/train.csv": table(FALLING), "s/val.csv": table(HIGHER)}, ["."]),
        ({"s/part-1.csv": table(FALLING), "s/part-2.csv": table(LATER)}, ["."]),
        ({"s/a.csv": table(FALLING), "s/copy.csv": table(FALLING)}, ["."]),
        ({"s/rank0.csv": table(FALLING), "s/rank1.csv": table(HIGHER)}, ["."]),
        ({f"j/tensorboard-output/train/{E}": GOOD, f"j/tensorboard-output/validation/{E}": GOOD}, ["j"]),
        ({f"r1/train/{E}": GOOD, f"r1/validation/{E}": GOOD, f"r2/train/{E}": BAD}, ["r1", "r2/train"]),
        ({f"r/{E}": events({}), f"r/loss_train/{E}": GOOD, f"r/loss_val/{E}": GOOD, f"q/{E}": GOOD}, ["q", "r"]),
        ({"l/version_0/metrics.csv": table(FALLING), f"l/version_1/{E}": GOOD}, ["l/version_0", "l/version_1"]),
        (
            {
                "o/checkpoint-5/trainer_state.json": trainer_state(FALLING),
                "o/checkpoint-9/trainer_state.json": trainer_state(FALLING),
                f"o/runs/Dec01_host/{E}": events(dict(FALLING), "train/loss"),
                "p/trainer_state.json": trainer_state(DYING),
            },
            ["o", "p"],
        ),
        (
            {
                "w/run-1-a/run-a.wandb": WANDB,
                "w/run-1-a/files/media/t.csv": "step,loss\n1,2\n",
                "w/run-2-b/run-b.wandb": WANDB,
            },
            ["w/run-1-a/run-a.wandb", "w/run-2-b/run-b.wandb"],
        ),
        (
            {f"m/1/{name}/metrics/loss": "1800000000000 1.0 1\n" for name in ("a" * 32, "b" * 32)}
            | {f"m/1/{name}/meta.yaml": "run_id: x\n" for name in ("a" * 32, "b" * 32)},
            [f"m/1/{'a' * 32}", f"m/1/{'b' * 32}"],
        ),
        ({"smi.csv": SMI, "metrics.csv": table(FALLING)}, ["."]),
        ({f"job/tensorboard-output/a/{E}": GOOD, f"job/trainer-output/b/{E}": BAD, f"o/{E}": GOOD}, ["job", "o"]),
    ],
    ids=[
        "tensorboard",
        "one job",
        "sweep",
        "modes",
        "parts",
        "copy",
        "ranks",
        "keras job",
        "keras",
        "add_scalars",
        "lightning",
        "trainer",
        "wandb",
        "mlflow",
        "samples",
        "job",
    ],
)
def test_each_run_of_a_tool_is_found(tmp_path: Path, files: Files, expected: list[str]) -> None:
    assert found(write(tmp_path, files)) == expected


def test_good_run_does_not_hide_the_broken_beside_it(tmp_path: Path) -> None:
    for number, names in enumerate((("a", "z"), ("z", "a"))):
        place = write(tmp_path / str(number), {f"{names[0]}/{E}": GOOD, f"{names[1]}/{E}": BAD})
        profiles = {each.place.rpartition("/")[2]: each.open() for each in find_runs(place).runs}
        assert {name: len(each.training.scalars) for name, each in profiles.items() if each.training} == {
            "a": 1,
            "z": 1,
        }
        with pytest.raises(SeveralRunsError, match=r"holds 2 runs \(.*/a, .*/z\), expected one: name it"):
            open_job(place)


@pytest.mark.parametrize(
    ("name", "body", "job"),
    [
        (E, GOOD, "r"),
        ("trainer_state.json", trainer_state(FALLING), "r"),
        ("my_losses.csv", table(FALLING), "r"),
        ("training.log", table(FALLING, column="epoch"), "r"),
        ("run-a.wandb", WANDB, "bert"),
    ],
)
def test_one_file_is_judged_as_its_folder(tmp_path: Path, name: str, body: bytes | str, job: str) -> None:
    write(tmp_path, {f"r/{name}": body})
    alone, folder = open_job(str(tmp_path / "r" / name)), open_job(str(tmp_path / "r"))
    assert (alone.root.job, alone.training is None) == (job, folder.training is None)
    if alone.training is not None and folder.training is not None:
        assert alone.training.scalars == folder.training.scalars


def test_samples_beside_a_log_are_of_its_run(tmp_path: Path) -> None:
    profile = open_job(write(tmp_path, {"smi.csv": SMI, "metrics.csv": table(FALLING)}))
    assert profile.nodes
    assert profile.training is not None
    assert len(profile.training.scalars) == 1


def test_missing_place_names_the_nearest(tmp_path: Path) -> None:
    place = write(tmp_path, {f"a_good/{E}": GOOD, f"z_bad/{E}": BAD})
    with pytest.raises(ProfileSourceError, match=r"a_god' does not exist, expected .*; perhaps you mean .*/a_good$"):
        find_runs(f"{place}/a_god")


def test_links_are_followed_once(tmp_path: Path) -> None:
    write(tmp_path, {f"runs/a/{E}": GOOD, f"else/b/{E}": BAD})
    for link, target in {"loop": "..", "again": "a", "b": "../else/b", "gone": "nowhere"}.items():
        (tmp_path / "runs" / link).symlink_to(target)
    (tmp_path / "runs" / "a" / "self").symlink_to(".")
    assert found(str(tmp_path / "runs")) == ["a", "b"]


def test_names_and_files_of_any_kind_are_passed_over(tmp_path: Path) -> None:
    odd = {"b/x.csv": b"\x00\r\xff", "b/y.json": b"\xff" * 9, "b/z.log": b""}
    write(tmp_path, {f"a\x1b[31m\n/{E}": GOOD, f"z/{E}": GOOD, **odd})
    os.mkfifo(tmp_path / "b" / "pipe.log")
    assert found(str(tmp_path)) == ["a\x1b[31m\n", "z"]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let folders called closed refuse to be read."""
    scandir = os.scandir

    def refused(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)


def test_folder_that_cannot_be_read_is_named(tmp_path: Path, closed: None) -> None:
    place = write(tmp_path, {f"a/{E}": GOOD, f"closed/{E}": BAD})
    first, second = find_runs(place).runs
    assert first.open().training is not None
    with pytest.raises(ProfileSourceError, match="closed' cannot be read: Permission denied"):
        second.open()


def test_closed_folder_in_a_run_costs_the_run_nothing(tmp_path: Path, closed: None) -> None:
    first, second = find_runs(write(tmp_path, {E: GOOD, f"closed/{E}": BAD})).runs
    assert first.open().training is not None
    with pytest.raises(ProfileSourceError, match="closed' cannot be read"):
        second.open()


def test_file_that_cannot_be_read_is_named_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write(tmp_path, {E: GOOD, "trainer_state.json": trainer_state(FALLING)})
    opened: Any = Path.open

    def refused(path: Path, *words: str) -> object:
        if path.name == E:
            raise PermissionError(13, "Permission denied")
        return opened(path, *words)

    monkeypatch.setattr(Path, "open", refused)
    report = analyze(place, time_lines=False)
    assert not report.healthy
    assert any(f"{E}' cannot be read: Permission denied" in note for note in report.notes)
    assert any(rule["status"] == "OK" for rule in report.rules.rows)


def test_newest_of_too_many_runs_are_kept_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write(tmp_path, {f"r{number}/{E}": GOOD for number in range(5)})
    for number in range(5):
        os.utime(tmp_path / f"r{number}" / E, (1_800_000_000.0 - number,) * 2)
    monkeypatch.setattr(local_runs, "MOST_RUNS", 2)
    runs = find_runs(place)
    assert [each.place.rpartition("/")[2] for each in runs.runs] == ["r0", "r1"]
    assert "5 runs were found; the newest 2 are judged" in runs.notes[0]


def test_reports_get_unlike_folders_without_odd_names() -> None:
    assert folder_names("x/top_folder", ["a_b", "a-b", ".", "../x", "w/run-a.wandb", "db.sqlite#7", "\x1b\n"]) == [
        *("a-b", "a-b-2", "top-folder", "x", "w/run-a", "db-sqlite/7", "profile")
    ]


def test_runs_below_a_prefix_are_those_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    files: Files = {
        f"a/{E}": GOOD,
        f"k/train/{E}": GOOD,
        f"k/validation/{E}": GOOD,
        "o/checkpoint-5/trainer_state.json": trainer_state(FALLING),
        "t/mine.csv": table(DYING),
        "w/run-1-a/run-a.wandb": WANDB,
        f"job/tensorboard-output/{E}": GOOD,
        "t/other.csv": "a,b\n1,2\n",
    }
    folder = write(tmp_path, files)
    with mock_aws():
        client = Clients().s3
        client.create_bucket(Bucket="profiles")
        for name, body in files.items():
            client.put_object(Bucket="profiles", Key=f"team/{name}", Body=body)
        client.put_object(Bucket="profiles", Key="none/x.pt", Body=b"")
        there = {
            each.place.removeprefix("s3://profiles/team/"): each.open() for each in find_runs("s3://profiles/team").runs
        }
        here = {os.path.relpath(each.place, folder): each.open() for each in find_runs(folder).runs}
        assert list(there) == list(here)
        for name, profile in there.items():
            assert profile.root.job == here[name].root.job
            assert (profile.training is None) == (here[name].training is None)
            if profile.training is not None and profile.training.scalars:
                key = profile.training.scalars[0]
                assert profile.training.objects.get(profile.training.bucket, key, 100_000)
        assert open_job(f"s3://profiles/team/a/{E}").root.job == "a"
        with pytest.raises(NoProfileError, match=r"met 1 \.pt"):
            find_runs("s3://profiles/none/")
        with pytest.raises(ProfileSourceError, match="holds no object"):
            find_runs("s3://profiles/te")
