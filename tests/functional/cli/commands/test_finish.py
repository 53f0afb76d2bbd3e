"""The forecast of a run's end in `analyze` and `report`, held by the checker of claims; nothing where it is unknown."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.claims.claim import Untrue
from tests.claims.finish import finish_claims
from tests.support.wandb_files import ended, field, history, run, run_file
from trainguard.cli.main import app
from trainguard.core.timestamps import iso_time
from trainguard.planning.document import FinishForecast, Range
from trainguard.planning.text import said_finish

AT = 1_800_000_000.0
Pace = Callable[[int], float]


def even(step: int) -> float:
    return 10.0 * step


def with_pauses(step: int) -> float:
    return 10.0 * step + 120.0 * (step // 20)


def slowing(step: int) -> float:
    return 10.0 * step + 0.02 * step**2


def write(folder: Path, config: Mapping[str, Any], pace: Pace = even, *, code: int | None = None) -> Path:
    """Write a run of W&B that has logged a loss of 100 steps."""
    items = (
        field(1, field(1, name.encode()) + field(16, json.dumps(value).encode())) for name, value in config.items()
    )
    described = field(5, b"".join(items))
    steps = [history(step, AT + pace(step), {"loss": 2.0 - step / 100.0, "epoch": step / 50.0}) for step in range(100)]
    folder.mkdir(exist_ok=True)
    records = [run("bert", at=AT), described, *steps, *([] if code is None else [ended(code)])]
    (folder / "run-a.wandb").write_bytes(run_file(records))
    return folder


def said(command: str, *words: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, [command, *map(str, words), "--json"])
    assert result.exit_code in {0, 3}, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def sentence_of(finish: dict[str, Any] | None) -> str | None:
    if finish is None:
        return None
    return said_finish(FinishForecast(**{**finish, "end": Range(**finish["end"])}))


@pytest.mark.parametrize(
    ("config", "total"),
    [
        ({"max_steps": 400}, 400),
        ({"max_steps": -1, "num_train_epochs": 6}, 300),
        ({"args/max-epochs": "6"}, 300),
        ({"lr": 0.1, "epochs": "many"}, None),
        ({"max_steps": 99}, 99),
    ],
)
@pytest.mark.parametrize("pace", [even, with_pauses, slowing])
def test_the_end_is_told_of_what_a_run_itself_says(
    config: dict[str, Any], total: int | None, pace: Pace, tmp_path: Path
) -> None:
    folder = write(tmp_path / "run", config, pace)
    analyzed = said("analyze", folder)
    drawn = said("report", folder, "--out", tmp_path / "out")
    assert analyzed["finish"] == drawn["finish"]
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    words = sentence_of(report["finish"])
    claims = list(finish_claims(report, total, None, words))
    assert [str(each) for each in claims if isinstance(each, Untrue)] == []
    assert (drawn["finish"] is None) is (total in {None, 99})
    shown = CliRunner().invoke(app, ["analyze", str(folder)]).stdout
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert ("The last one is forecast for" in shown) is ("The last one is forecast for" in page) is (words is not None)
    assert words is None or words in shown


@pytest.mark.parametrize(("code", "is_told"), [(None, True), (0, False), (1, False)])
def test_a_run_that_has_ended_has_no_end_to_forecast(code: int | None, is_told: bool, tmp_path: Path) -> None:
    folder = write(tmp_path / "run", {"max_steps": 400}, code=code)
    assert (said("analyze", folder)["finish"] is not None) is is_told


@pytest.mark.parametrize(
    ("limit", "seconds", "words"),
    [("50m", 3_000.0, "The time limit ends it"), ("2h", 7_200.0, "Its time limit is"), ("soon", None, None)],
)
def test_a_limit_that_the_owner_wrote_is_compared(
    limit: str, seconds: float | None, words: str | None, tmp_path: Path
) -> None:
    events = write(tmp_path / "of-wandb", {})
    done = said("report", events, "--out", tmp_path / "first")
    assert done["finish"] is None
    folder = tmp_path / "job"
    (folder / "tensorboard").mkdir(parents=True)
    about = {"name": "job", "started_at": AT, "settings": {"total-steps": 400, "time-limit": limit}}
    (folder / "job.json").write_text(json.dumps(about))
    write_events(folder / "tensorboard")
    said("report", folder, "--out", tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    sentence = sentence_of(report["finish"])
    claims = list(finish_claims(report, 400, seconds, sentence))
    assert [str(each) for each in claims if isinstance(each, Untrue)] == []
    assert (words or "forecast") in (sentence or "")


def write_events(folder: Path) -> None:
    from trainguard.formats.runs.managed import event_file  # noqa: PLC0415 -- it imports protobuf
    from trainguard.formats.tensors.scalars.rows import Recording  # noqa: PLC0415

    rows = [Recording(step, AT + even(step), {"loss": 2.0 - step / 100.0}) for step in range(100)]
    (folder / "events.out.tfevents.1.h").write_bytes(event_file(rows))


def test_the_checker_finds_a_false_end() -> None:
    series = {"at": [AT + even(step) for step in range(100)], "steps": list(range(100))}
    end = {"value": AT + 4_000.0, "low": AT + 3_900.0, "high": AT + 4_100.0}
    finish = {"done": 99, "total": 400, "at": AT + 990.0, "end": end, "limit_at": None}
    job = {"status": "InProgress", "started_at": iso_time(AT)}
    report = {"finish": finish, "training": {"series": [series]}, "job": job}

    def untrue(total: int | None = 400, **changes: Any) -> int:
        changed: dict[str, Any] = {**report, "finish": {**finish, **changes}}
        return sum(each is not None for each in finish_claims(changed, total, None, sentence_of(changed["finish"])))

    assert untrue() == 0
    assert untrue(done=98) == 1
    assert untrue(at=AT) >= 1
    assert untrue(end={"value": AT + 4_500.0, "low": AT + 3_900.0, "high": AT + 4_600.0}) == 1
    assert untrue(end={"value": AT + 4_000.0, "low": AT + 4_050.0, "high": AT + 4_100.0}) == 1
    assert untrue(limit_at=AT) >= 1
    assert untrue(total=None) == 1
