"""What a report shows of a job's training: its debug-output, and its files of scalars."""

from trainguard.engine.family import ObjectSource
from trainguard.errors import RunMissingError
from trainguard.families.training.family import TRAINING_HEALTH
from trainguard.families.training.keys import SCALARS
from trainguard.families.training.scalar_session import state_of
from trainguard.local.run_files import TrainingFiles
from trainguard.local.training import EvaluatedTraining
from trainguard.report.training.digest import TrainingDigest, joined
from trainguard.report.training.predictions import CONFUSION, names_of
from trainguard.report.training.read import RunPart, read_on
from trainguard.report.training.read_scalars import ScalarPart, read_scalars_on
from trainguard.tensors.debug.keys import run_files
from trainguard.tensors.scalars.names import ScalarNames


def digest_training(
    training: TrainingFiles, job: str, done: EvaluatedTraining, names: ScalarNames
) -> TrainingDigest | None:
    """Read what a report shows of a job's training.

    Parameters
    ----------
    training : TrainingFiles
    job : str
        What the run is called in errors.
    done : EvaluatedTraining
        The tensors that its rules name are shown before others.
    names : ScalarNames
        What names of scalars mean.

    Returns
    -------
    TrainingDigest or None
        None of a debug-output without a collections file that can be read, and no scalars beside it.
    """
    scalars = _of_scalars(training, done, names) if training.scalars else TrainingDigest()
    if not training.tensors:
        return scalars
    files = run_files(training.objects, training.bucket, training.root)
    checks = [each.state.first for rules in done.streams for each in rules if each.state is not None]
    wanted = {check.tensor for check in checks if check is not None and check.tensor is not None}
    try:
        tensors = read_on(files, job, RunPart(), wanted=wanted, confusion=_confusion(done), ended=training.ended).digest
    except RunMissingError:
        return scalars if scalars.steps else None
    return joined(tensors, scalars)


def _confusion(done: EvaluatedTraining) -> dict[str, str]:
    given = [each.parameters for rules in done.streams for each in rules if each.rule.name == CONFUSION]
    return names_of(given[0]) if given else {}


def _of_scalars(training: TrainingFiles, done: EvaluatedTraining, names: ScalarNames) -> TrainingDigest:
    source = ObjectSource(training.objects, training.bucket, training.root, TRAINING_HEALTH.object_cap_bytes)
    until = {
        name: step
        for record in done.records
        if record.key.stream == SCALARS
        for name, step in state_of(record).other_runs.items()
    }
    return read_scalars_on(source, ScalarPart(), names, until=until).digest
