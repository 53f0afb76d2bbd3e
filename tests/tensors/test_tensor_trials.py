"""The trials read as they were written: their figures, modes, types and members."""

import math
from itertools import pairwise

import numpy as np
import pytest

from tests.support.faults import Faults
from tests.support.memory import MemoryProfileObjects
from tests.support.run_folder import FolderFiles
from tests.support.tensor_trials import expected, trial_run, trial_steps, trials, write_trial
from trainguard.core.layout import ProfileRoot
from trainguard.formats.tensors.debug.keys import run_files, run_prefix
from trainguard.formats.tensors.debug.ledger import StepLedger
from trainguard.formats.tensors.debug.run import complete_steps, find_run
from trainguard.formats.tensors.step_view import Mode, is_numeric


@pytest.mark.parametrize("name", ["vanishing_gradient", "healthy", "exploding_tensor"])
def test_figures_of_the_trace(name: str) -> None:
    """Figures that the client library computed when the trials were written."""
    trace = {row["step"]: row for row in expected()[name]["trace"]}
    steps = trial_steps(name)
    assert [step.step for step in steps] == list(trace)
    for step in steps:
        gradients = [float(np.abs(step.value(each)).mean(dtype=np.float64)) for each in step.members("gradients")]
        least = trace[step.step]["abs_mean_grad_min"]
        if not math.isnan(least):
            assert min(gradients) == pytest.approx(least, rel=1e-5)
        else:
            assert any(math.isnan(each) for each in gradients)
        bad = {each for each in step.names if not np.isfinite(step.value(each)).all()}
        named = set(trace[step.step]["nonfinite"])
        assert named <= bad
        assert bool(named) == bool(bad)


def test_modes_and_their_steps() -> None:
    steps = trial_steps("overtraining")
    assert [(step.mode, step.mode_step) for step in steps[:4]] == [
        (Mode.TRAIN, 0),
        (Mode.EVAL, 0),
        (Mode.TRAIN, 1),
        (Mode.EVAL, 1),
    ]
    assert [each.step for each in steps[20].earlier("loss", 3)] == [18, 16, 14]


def test_times_are_those_of_the_events() -> None:
    at = [step.at for step in trial_steps("stalled")]
    assert [later - earlier for earlier, later in pairwise(at)] == [60, 60, 60, 1920]


def test_dead_nodes_are_counted_as_expected() -> None:
    dead = []
    for step in trial_steps("dead_relu"):
        active = (step.value("conv0_relu_output_0") > 0).mean(axis=0) * 100
        dead.append(round(100 * float((active < 1).mean())))
    assert dead == expected()["dead_relu"]["DeadRelu"]["percent_dead"]


def test_a_real_file_of_the_hook() -> None:
    (step,) = trial_steps("tf2_losses_step0")
    assert step.names == ["loss/mul:0"]
    assert step.value("loss/mul:0").dtype == np.float32
    assert step.value("loss/mul:0").tolist() == pytest.approx([129.74995], rel=1e-6)
    assert step.at == pytest.approx(1_611_822_700.651, abs=1e-3)


def test_a_real_job_of_xgboost() -> None:
    steps = trial_steps("xgboost_metrics_LienHungChen")
    assert (len(steps), steps[-1].step) == (200, 995)
    assert steps[0].members("losses") == steps[0].members("metrics") == {"train-merror", "validation-merror"}
    assert steps[0].value("train-merror").tolist() == [0.247961]


def test_the_hook_of_xgboost() -> None:
    steps = trial_steps("hook_xgboost_wine")
    first = steps[0]
    assert [step.step for step in steps] == list(range(0, 51, 5))
    assert first.value("hyperparameters/objective").tolist() == ["multi:softmax"]
    assert first.value("labels").dtype == np.float32
    assert np.isnan(first.value("trees/Split")).any()
    assert not is_numeric(first.value("hyperparameters/objective"))
    importance = [float(first.value(each)[0]) for each in first.names if each.startswith("feature_importance/weight/")]
    assert sum(importance) == pytest.approx(1)
    assert first.members("losses") == {"train-mlogloss", "validation-mlogloss"}
    assert first.names == sorted(first.names)


def test_another_trial_is_another_run() -> None:
    first_other = []
    for step in trial_steps("similar_b"):
        other = step.other_run("similar_a")
        assert other is not None
        if not np.allclose(other.value("w"), step.value("w")):
            first_other.append(step.step)
    assert first_other


def test_no_collection_of_a_trial_has_a_refused_regex() -> None:
    for name in trials():
        run = trial_run(name)
        for step in trial_steps(name):
            for collection in run.membership.names:
                step.members(collection)
        assert run.membership.unusable == {}


def test_a_folder_on_disk_reads_like_files_in_memory(tmp_path) -> None:  # type: ignore[no-untyped-def]
    files = FolderFiles(write_trial("unchanged_test", tmp_path))
    run = find_run(files, "unchanged_test")
    found = {step.step: step.names for step in complete_steps(files, run, StepLedger())}
    assert found == {step.step: step.names for step in trial_steps("unchanged_test")}
    assert list(found) == [0, 1, 2, 5]


def test_a_run_in_a_bucket_reads_like_files_in_memory() -> None:
    objects = MemoryProfileObjects(faults=Faults(), page_size=3)
    root = ProfileRoot("team/", "my-job")
    for name, content in trials()["overtraining"].items():
        objects.put("bucket", run_prefix(root) + name, content, "")
    files = run_files(objects, "bucket", root)
    found = [
        (step.step, step.value("loss").tolist())
        for step in complete_steps(files, find_run(files, "my-job"), StepLedger())
    ]
    assert found == [(step.step, step.value("loss").tolist()) for step in trial_steps("overtraining")]
    assert [*files.list("training", start_after="training_job_end.ts")] == []
