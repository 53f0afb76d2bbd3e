"""Files of scalars, evaluated on this machine: each row counts, and runs are distinguished."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.families.training.test_scalars import events
from tests.functional.local.test_training import reports_of
from tests.support.small_job import START
from tests.support.steps import RULES
from trainguard.cli.main import app
from trainguard.core.errors import NoProfileError
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.formats.tensors.scalars.rows import ScalarHistory, ScalarRow
from trainguard.formats.tensors.scalars.step import ScalarStep
from trainguard.formats.tensors.step_view import Mode
from trainguard.local.api import analyze
from trainguard.local.runs import open_job
from trainguard.rules.parameters import parameters_of
from trainguard.rules.training.step_rule import RunView

Losses = Mapping[int, float]
BROKEN: Losses = {step: 2.0 / (1 + step / 200) if step < 510 else math.nan for step in range(10, 1_010, 10)}
FALLING: Losses = {step: 2.0 * math.exp(-step / 100) + 0.3 for step in range(0, 300, 10)}
DYING: Losses = {**FALLING, **dict.fromkeys((270, 280, 290), math.nan)}


def table(losses: Losses, column: str = "step", loss: str = "train_loss") -> str:
    return f"{column},{loss}\n" + "".join(f"{step},{value}\n" for step, value in losses.items())


def trainer_state(losses: Losses) -> str:
    return json.dumps({"log_history": [{"step": step, "loss": value} for step, value in losses.items()]})


def place(folder: Path, files: Mapping[str, str | bytes], *, apart_s: float = 1.0) -> str:
    """Write files in their order, each so much newer than the one before; return the job's folder."""
    for number, (name, body) in enumerate(files.items()):
        file = folder / "job" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body if isinstance(body, bytes) else body.encode())
        os.utime(file, (START + 50_000.0 + number * apart_s,) * 2)
    return str(folder / "job")


def replayed(rule: str, losses: Losses, name: str) -> list[int]:
    """Return the steps at which a rule fires that is shown one row after another."""
    found, names, history = RULES[rule], ScalarNames(), ScalarHistory()
    state, parameters, steps = found.state_type(), parameters_of(found.name, found.parameters_type, {}), list[int]()

    def note() -> None:
        latest = state.latest
        if latest is not None and latest.fires and latest.step not in steps:
            steps.append(latest.step)

    for step, value in losses.items():
        row = ScalarRow(step, Mode.TRAIN, START + step, {name: value})
        found.observe(state, ScalarStep(row, names, history), parameters)
        history.add(row)
        note()
    found.judge(state, RunView(len(losses), closed=True), parameters)
    note()
    return steps


@pytest.mark.parametrize(
    ("file", "body", "name"),
    [
        ("trainer_state.json", trainer_state(BROKEN), "loss"),
        ("metrics.csv", table(BROKEN), "train_loss"),
        ("events.out.tfevents.1.h", events(dict(BROKEN), "train/loss"), "train/loss"),
    ],
)
def test_firing_steps_of_many_rows_match_a_plain_replay(
    tmp_path: Path, file: str, body: str | bytes, name: str
) -> None:
    reports = reports_of(place(tmp_path, {file: body}), {})
    fired = {rule: report["steps"] for rule, report in reports.items() if report["steps"]}
    assert fired["ExplodingTensor"] == list(range(530, 1_010, 10))
    assert {"LossNotDecreasing", "TrainingDiverged", "Overtraining"} & fired.keys()
    for rule, steps in fired.items():
        assert steps == replayed(rule, BROKEN, name), rule
        assert steps[0] == reports[rule]["first_step"]


V0, V1, V10 = (f"trainer-output/lightning_logs/version_{number}/metrics.csv" for number in (0, 1, 10))
A, B = "trainer-output/a/trainer_state.json", "trainer-output/b/trainer_state.json"
SHIFTED: Losses = {step + 5: value for step, value in FALLING.items()}
SLOWER: Losses = {step: value + 0.2 for step, value in FALLING.items()}
RESUMED: Losses = dict.fromkeys(range(250, 400, 10), 0.3)


@pytest.mark.parametrize(
    ("files", "fires", "note", "checked"),
    [
        ({V0: table(DYING), V1: table(SLOWER)}, False, "version_0", 30),
        ({V0: table(DYING), V1: table(SHIFTED)}, False, "version_0", 30),
        ({V0: table(SLOWER), V1: table(DYING)}, True, "version_0", 30),
        ({V10: table(DYING), V1: table(SLOWER)}, True, "version_1/", 30),
        ({V0: table(DYING), V1: table(RESUMED)}, False, "from step 250 on", 40),
        (
            {V0: table(DYING), V1: table({**RESUMED, **dict.fromkeys((300, 310, 320), math.nan)})},
            True,
            "from step 250 on",
            40,
        ),
        ({V0: table(DYING), V1: table(dict.fromkeys(range(300, 400, 10), 0.3))}, True, None, 40),
        ({V0: table(DYING), "trainer-output/backup/metrics.csv": table(DYING)}, True, None, 30),
        (
            {V0: table(DYING), "trainer-output/lightning_logs/version_0/val.log.csv": table(SLOWER, loss="val_loss")},
            True,
            None,
            60,
        ),
        (
            {A: trainer_state(DYING), B: trainer_state(SLOWER)},
            False,
            "a/",
            30,
        ),
    ],
    ids=[
        "again",
        "interleaved",
        "newest broken",
        "tenth",
        "resumed",
        "resumed broken",
        "goes on",
        "copy",
        "parts",
        "hf",
    ],
)
def test_newest_of_two_runs_is_judged_and_the_other_named(
    tmp_path: Path, files: Mapping[str, str], fires: bool, note: str | None, checked: int
) -> None:
    report = analyze(place(tmp_path, files), time_lines=True)
    rule = next(each for each in report.document.rules if each.rule == "training/ExplodingTensor")
    assert (rule.times_fired > 0, rule.data_points) == (fires, checked)
    counters = report.document.coverage[0].counters
    assert counters.get("files_of_other_runs", 0) == int(note is not None)
    said = [sentence for sentence in report.notes if "older run" in sentence]
    assert set(said) <= set(report.document.job.data_missing)
    assert (note is None and not said) or (note is not None and note in said[0])
    assert report.document.training is not None
    seen = sum(series.seen for series in report.document.training.series)
    assert seen == checked


def test_longest_log_of_checkpoints_copied_at_once_counts(
    tmp_path: Path,
) -> None:
    whole, half = trainer_state(BROKEN), trainer_state({step: BROKEN[step] for step in range(10, 510, 10)})
    files = {"checkpoint-1000/trainer_state.json": whole, "checkpoint-500/trainer_state.json": half}
    report = reports_of(place(tmp_path, files, apart_s=0.1), {})["ExplodingTensor"]
    assert report["first_step"] == 530


def test_names_without_losses_are_listed_with_the_setting(
    tmp_path: Path,
) -> None:
    job = place(tmp_path, {"metrics.csv": table(FALLING, loss="objective")})
    reports = reports_of(job, {})
    said = reports["TrainingDiverged"]["reason"]
    assert "hold objective; none of these names is taken for a loss" in said
    assert "ScalarNames_losses=objective" in said
    for rule in ("Overfit", "NotLearning", "StalledTrainingRule"):
        assert "CollectionConfig" not in reports[rule]["reason"], rule
    assert "and no tensors" in reports["VanishingGradient"]["reason"]
    reports = reports_of(job, {"losses": "objective"}, "ScalarNames")
    assert "taken for losses: objective. It checks losses of training and of evaluation" in reports["Overfit"]["reason"]


@pytest.mark.parametrize(
    ("body", "is_read"),
    [
        (table(DYING).replace(",", ";"), True),
        (table(DYING, column="epoch", loss="accuracy"), True),
        ("id,loss\n1,nan\n", False),
        ("step,price\n1,nan\n", False),
        ("", False),
    ],
)
def test_header_of_a_renamed_log_says_if_it_is_training(tmp_path: Path, body: str, is_read: bool) -> None:
    job = place(tmp_path, {"my_run.csv": body})
    if is_read:
        assert reports_of(job, {})["ExplodingTensor"]["status"] == "IssuesFound"
        return
    with pytest.raises(NoProfileError, match=r"trainer_state\.json, a CSV log or lines of JSON with a column step"):
        open_job(job)


GAP: Losses = dict.fromkeys((*range(20), *range(4000, 4020)), 1.0)


@pytest.mark.parametrize(
    ("files", "status", "said"),
    [
        ({"metrics.csv": table(GAP)}, "NotApplicable", "The file has no times: its 40 steps all have that"),
        ({"trainer_state.json": trainer_state(GAP)}, "NotApplicable", "The file has no times"),
        ({"a.tfevents": events(dict(GAP), "train_loss")}, "IssuesFound", "Step 19: no step was saved for"),
        ({"a.tfevents": events(dict(GAP), "x"), "metrics.csv": table({**GAP, 10: 1.0})}, "IssuesFound", "Step 19: no"),
    ],
    ids=["csv", "hugging face", "events", "both"],
)
def test_long_gap_is_a_stall_only_if_files_have_times(
    tmp_path: Path, files: Mapping[str, str | bytes], status: str, said: str
) -> None:
    report = reports_of(place(tmp_path, files, apart_s=50_000.0), {})["StalledTrainingRule"]
    assert report["status"] == status
    assert said in report["reason"]


def test_wrong_setting_puts_only_its_rule_in_error(
    tmp_path: Path,
) -> None:
    job = place(tmp_path, {V0: table(SLOWER), V1: table(DYING)})

    def run(parameters: dict[str, Any]) -> Result:
        (tmp_path / "p.json").write_text(json.dumps(parameters))
        return CliRunner().invoke(app, ["analyze", job, "--out", f"{tmp_path}/out", "--params", f"{tmp_path}/p.json"])

    shown = run({"AllZero_start_step": 0, "Plateau_start_step": "soon", "ExplodingTensor": {"only_nan": True}})
    assert shown.exit_code == 0
    reports = {file.stem: json.loads(file.read_text()) for file in (tmp_path / "out/debugger-reports").iterdir()}
    assert {rule for rule, report in reports.items() if report["status"] == "Error"} >= {"AllZero", "Plateau"}
    assert "Plateau_start_step is 'soon'" in reports["Plateau"]["reason"]
    assert reports["ExplodingTensor"]["status"] == "IssuesFound"
    assert "lightning_logs/version_0/metrics.csv is of an older run" in shown.stderr
    assert run({"NoSuchRule": {"threshold": 1}}).exit_code == 2


RISEN: Losses = {step: 2.0 * math.exp(-step / 40) + (0.2 if step < 200 else 60.0 + step / 4) for step in range(300)}
CALM: Losses = {step: 2.0 * math.exp(-step / 60) + 0.3 for step in range(300)}


def once(losses: Losses) -> str:
    return table(losses, "epoch", "loss")


@pytest.mark.parametrize(
    ("older", "newer", "fires"), [(RISEN, CALM, False), (CALM, RISEN, True)], ids=["repaired", "broken again"]
)
@pytest.mark.parametrize("kind", ["appended table", "one event file", "state", "log"])
def test_newest_segment_of_one_source_is_judged(
    tmp_path: Path, kind: str, older: Losses, newer: Losses, fires: bool
) -> None:
    entries = [{"step": step, "loss": value} for losses in (older, newer) for step, value in losses.items()]
    files: dict[str, dict[str, str | bytes]] = {
        "appended table": {"history.csv": once(older) + once(newer)},
        "one event file": {"events.out.tfevents.1.h": events(dict(older)) + events(dict(newer))},
        "state": {"trainer_state.json": json.dumps({"log_history": entries})},
        "log": {"out.txt": "".join(f"step {entry['step']} | loss: {entry['loss']:.6f}\n" for entry in entries)},
    }
    report = analyze(place(tmp_path, files[kind]))
    by_name = {each.rule: each for each in report.document.rules}
    assert (by_name["training/TrainingDiverged"].times_fired > 0) is fires
    assert report.document.coverage[0].counters["overwritten_scalars"] == len(older)
    assert any("begins again at step 0" in note for note in report.notes)
    assert report.document.training is not None
    assert sum(series.seen for series in report.document.training.series) == len(newer)
    assert report.document.healthy is not fires


def test_resumed_run_keeps_what_came_before(tmp_path: Path) -> None:
    first, second = {step: CALM[step] for step in range(200)}, {step: CALM[step] for step in range(150, 300)}
    report = analyze(place(tmp_path, {"history.csv": once(first) + once(second)}))
    rule = next(each for each in report.document.rules if each.rule == "training/TrainingDiverged")
    assert rule.data_points == 300
    assert report.document.coverage[0].counters == {"overwritten_scalars": 50}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (once(CALM).replace("10,", "ten,", 1), "history.csv: line 12: its step is 'ten'"),
        (once(CALM) + "300,oops\n", "history.csv: line 302: 'oops' in column 'loss' is no number"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "history.csv: is a pointer of Git LFS"),
    ],
)
def test_unreadable_part_is_named_and_no_all_clear(tmp_path: Path, body: str, said: str) -> None:
    job = place(tmp_path, {"history.csv": body, "events.out.tfevents.1.h": events(dict(CALM))})
    report = analyze(job)
    assert not report.document.healthy
    assert any(note.startswith(said) for note in report.notes)
    result = CliRunner().invoke(app, ["analyze", job])
    assert said in " ".join(result.output.split())
    assert "minute" not in result.output.rpartition("Not used")[2]
    assert analyze(place(tmp_path / "whole", {"history.csv": once(CALM)})).document.healthy


def test_blank_cells_and_repeated_headers_are_no_fault(tmp_path: Path) -> None:
    rows = "".join(f"{step},{value},{'' if step % 5 else value + 0.1}\n" for step, value in CALM.items())
    head = "step,loss,val_loss\n"
    report = analyze(place(tmp_path, {"history.csv": head + rows[: len(rows) // 2] + rows[len(rows) // 2 :] + head}))
    assert report.document.coverage[0].counters == {}
    assert report.document.healthy


def test_log_beside_other_files_is_not_mixed_with_them(tmp_path: Path) -> None:
    text = "".join(f"loss: {value}\n" for value in RISEN.values())
    report = analyze(place(tmp_path, {"out.txt": text, "events.out.tfevents.1.h": events(dict(CALM), "loss")}))
    rule = next(each for each in report.document.rules if each.rule == "training/TrainingDiverged")
    assert (rule.data_points, rule.times_fired) == (300, 0)


@pytest.mark.parametrize(
    ("older", "newer", "fires"), [(RISEN, CALM, False), (CALM, RISEN, True)], ids=["repaired", "broken again"]
)
def test_newer_of_two_event_files_in_a_folder_is_judged(
    tmp_path: Path, older: Losses, newer: Losses, fires: bool
) -> None:
    files: dict[str, str | bytes] = {
        "events.out.tfevents.1.h": events(dict(older)),
        "events.out.tfevents.2.h": events(dict(newer), at=START + 1_000.0),
    }
    report = analyze(place(tmp_path, files))
    by_name = {each.rule: each for each in report.document.rules}
    assert (by_name["training/TrainingDiverged"].times_fired > 0) is fires
    assert any("events.out.tfevents.1.h is of an older run" in note for note in report.notes)
    assert report.document.training is not None
    assert sum(series.seen for series in report.document.training.series) == len(newer)
