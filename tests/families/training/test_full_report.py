"""The full report of a job that saved tensors alone, as the deployed machine makes it over the functions' own code."""

from typing import Any

import msgspec
import pytest

from tests.families.training.runs import uploads_of
from tests.families.training.test_scalars import close, events, put
from tests.support.delivery import Network
from tests.support.memory import MemoryWorld
from tests.support.report_runs import FOLDER, ReportRun
from tests.support.small_job import BUCKET, JOB, START, describe
from tests.support.tensor_trials import trials
from trainguard.core.errors import ObjectMissingError
from trainguard.engine.installed import FAMILIES
from trainguard.report.document import Report
from trainguard.stack.report import digest


def evaluated(trial: str, rules: str) -> MemoryWorld:
    """Return the world of a trial's job, all of whose steps were judged."""
    network = Network(families=FAMILIES)
    network.world.training_jobs.set(describe({"trainguard:training-rules": rules}))
    for place, upload in enumerate(uploads_of(trials()[trial])):
        network.put(upload)
        network.announce(upload, START + place)
    network.run_until(START + 5_000.0, batch_s=3.0)
    return network.world


def written(world: MemoryWorld, name: str) -> bytes:
    return world.objects.get(BUCKET, f"{FOLDER}{name}", 10_000_000)


def report_of(world: MemoryWorld) -> Report:
    return msgspec.json.decode(written(world, "report.json"), type=Report)


def names_of(world: MemoryWorld) -> set[str]:
    return {each.key.removeprefix(FOLDER) for each in world.objects.list(BUCKET, FOLDER, "")}


def test_exploding_tensors_show_where_it_began() -> None:
    world = evaluated("exploding_tensor", "ExplodingTensor")
    ReportRun(world).run()
    training = report_of(world).training
    assert training is not None
    assert [(each.rule, each.step) for each in training.fires] == [("training/ExplodingTensor", 3)]
    assert training.steps == 8
    page = written(world, "report.html").decode()
    assert 'id="training-gradients"' in page
    assert 'id="timelines"' not in page
    assert "xgboost_report.html" not in names_of(world)
    assert not [name for name in names_of(world) if name.startswith("parts/")]


def test_xgboost_report_in_parts_matches_one_part() -> None:
    rules = "CreateXgboostReport Confusion"
    at_once, by_step = evaluated("hook_xgboost_wine", rules), evaluated("hook_xgboost_wine", rules)
    ReportRun(at_once).run()
    run = ReportRun(by_step, looks=0)
    run.run()
    assert run.calls("DigestProfile") == 12
    files = {f"xgboost-reports/{name}.json" for name in XGBOOST_FILES} | {"xgboost_report.html"}
    assert files <= names_of(at_once)
    assert files <= names_of(by_step)
    for name in files:
        assert written(by_step, name) == written(at_once, name)
    assert b"0.803" in written(at_once, "xgboost_report.html")


XGBOOST_FILES = (
    "ConfusionMatrix",
    "EvaluationMetrics",
    "FeatureImportance",
    "IterativeClassAccuracy",
    "LabelsDistribution",
    "LossData",
    "ResidualDistribution",
)


@pytest.mark.parametrize("how", [{"lost": {"all-workers"}}, {"late": {"all-workers"}}])
def test_unreadable_tensors_are_reported_and_rest_is_written(how: Any) -> None:
    world = evaluated("exploding_tensor", "ExplodingTensor")
    ReportRun(world, **how).run()
    report = report_of(world)
    assert report.training is None
    assert "training/ExplodingTensor" in report.fired
    assert b"debug-output could not be read" in written(world, "report.json")


def test_report_out_of_time_shows_the_first_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(digest, "MAX_PARTS", 2)
    world = evaluated("exploding_tensor", "ExplodingTensor")
    ReportRun(world, looks=0).run()
    training = report_of(world).training
    assert training is not None
    assert (training.steps, training.last_step) == (2, 3)
    assert b"debug-output could not be read after step 3" in written(world, "report.json")


SCALARS = {
    "tensorboard-output/train/events.out.tfevents.1.h": events({step: 2.0 - 0.02 * step for step in range(60)}, "loss"),
    "tensorboard-output/val/events.out.tfevents.1.h": events(dict.fromkeys(range(0, 60, 5), 2.1), "loss"),
}


def put_scalars(network: Network) -> None:
    for place, (name, body) in enumerate(SCALARS.items()):
        put(network, name, body, 10.0 + place)
    close(network)


def test_scalar_report_in_parts_draws_the_losses_of_one() -> None:
    shown = []
    for looks in (1_000_000, 0):
        network = Network(families=FAMILIES)
        put_scalars(network)
        run = ReportRun(network.world, looks=looks)
        run.run()
        training = report_of(network.world).training
        assert training is not None
        assert (training.steps, training.first_step, training.last_step, training.left_out) == (72, 0, 59, [])
        assert [(each.name, each.mode, each.seen) for each in training.series] == [
            ("loss", "TRAIN", 60),
            ("loss", "EVAL", 12),
        ]
        shown.append((run.calls("DigestProfile"), msgspec.json.encode(training)))
        assert 'id="training-series"' in written(network.world, "report.html").decode()
    assert shown[0][0] == 1
    assert shown[1][0] > 2
    assert shown[0][1] == shown[1][1]


def test_tensors_and_scalars_are_both_drawn() -> None:
    network = Network(families=FAMILIES)
    network.world.training_jobs.set(describe({"trainguard:training-rules": "ExplodingTensor"}))
    for place, upload in enumerate(uploads_of(trials()["exploding_tensor"])):
        network.put(upload)
        network.announce(upload, START + place)
    put_scalars(network)
    ReportRun(network.world).run()
    training = report_of(network.world).training
    assert training is not None
    assert training.steps == 8 + 72
    assert {"loss", "MSELoss_output_0"} == {each.name for each in training.series}
    assert 'id="training-gradients"' in written(network.world, "report.html").decode()


def test_report_out_of_time_names_unread_scalar_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(digest, "MAX_PARTS", 1)
    network = Network(families=FAMILIES)
    put_scalars(network)
    ReportRun(network.world, looks=0).run()
    assert b"The files of scalars could not be read" in written(network.world, "report.json")


def test_report_from_state_has_no_tensors() -> None:
    world = evaluated("exploding_tensor", "ExplodingTensor")
    assert ReportRun(world).build({"job": JOB})
    assert report_of(world).training is None
    with pytest.raises(ObjectMissingError):
        written(world, "xgboost_report.html")
