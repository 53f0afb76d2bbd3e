"""The trusted rules on a job whose owner chose none: from a trainer's file to fires and rows."""

from tests.families.training.runs import network_of, rows_of
from tests.families.training.test_scalars import close, put
from trainguard.core.records import Status
from trainguard.engine.family import Families
from trainguard.engine.profiler.family import PROFILER
from trainguard.engine.training.family import TRAINING_HEALTH

FILE = "trainer-output/metrics.csv"


def log(losses: list[float], accuracy: float) -> bytes:
    """Return what Keras's CSVLogger writes."""
    rows = [f"{epoch},{accuracy},{loss},{accuracy},{loss}" for epoch, loss in enumerate(losses)]
    return "\n".join(["epoch,accuracy,loss,val_accuracy,val_loss", *rows, ""]).encode()


def statuses(losses: list[float], accuracy: float) -> dict[str, Status]:
    network = network_of([], Families(PROFILER, TRAINING_HEALTH))
    put(network, FILE, log(losses, accuracy), 10.0)
    close(network)
    return {
        target.rpartition("/")[2]: row.status
        for target, row in rows_of(network).items()
        if target.rpartition("/")[2] in ("NotLearning", "TrainingDiverged", "Plateau")
    }


def test_keras_log_without_learning_fires_not_learning() -> None:
    found = statuses([2.303, 2.302, 2.304, 2.303, 2.303, 2.302, 2.304, 2.303], 0.1)
    assert found["NotLearning"] is Status.FIRED
    assert found["TrainingDiverged"] is Status.OK


def test_keras_log_of_a_learning_run_fires_no_trusted_rule() -> None:
    assert Status.FIRED not in statuses([2.3 * 0.6**epoch for epoch in range(10)], 0.97).values()


def test_keras_log_with_nan_loss_fires_training_diverged() -> None:
    assert statuses([2.3, 2.0, float("nan"), float("nan")], 0.1)["TrainingDiverged"] is Status.FIRED
