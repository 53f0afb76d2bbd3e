"""What a report shows of a job's training: its debug-output, or its files of scalars where it has none."""

from dataclasses import replace

from trainguard.engine.family import ObjectSource
from trainguard.errors import RunMissingError
from trainguard.families.training.family import TRAINING_HEALTH
from trainguard.families.training.keys import SCALARS
from trainguard.families.training.scalar_files import ScalarFiles
from trainguard.families.training.scalar_session import state_of
from trainguard.local.run_files import TrainingFiles
from trainguard.local.training import EvaluatedTraining
from trainguard.report.training.digest import Digester, TrainingDigest
from trainguard.report.training.read import RunPart, read_on
from trainguard.tensors.debug.keys import run_files
from trainguard.tensors.files import BucketFiles
from trainguard.tensors.scalars.names import ScalarNames
from trainguard.tensors.scalars.reading import read_sources, scalar_steps


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
        None of a debug-output without a collections file that can be read.
    """
    if not training.tensors:
        return _of_scalars(training, done, names)
    files = run_files(training.objects, training.bucket, training.root)
    checks = [each.state.first for rules in done.streams for each in rules if each.state is not None]
    wanted = {check.tensor for check in checks if check is not None and check.tensor is not None}
    try:
        return read_on(files, job, RunPart(), wanted=wanted, ended=training.ended).digest
    except RunMissingError:
        return None


def _of_scalars(training: TrainingFiles, done: EvaluatedTraining, names: ScalarNames) -> TrainingDigest:
    source = ObjectSource(training.objects, training.bucket, training.root, TRAINING_HEALTH.object_cap_bytes)
    folder = training.root.folder
    listed = ScalarFiles(source).listed()
    placed = {name: each.listed.key.removeprefix(folder) for name, each in listed.items()}
    found = [(replace(each.key.file, name=placed[name]), each.listed.last_modified) for name, each in listed.items()]
    until = {
        placed[name]: step
        for record in done.records
        if record.key.stream == SCALARS
        for name, step in state_of(record).other_runs.items()
        if name in placed
    }
    reading = read_sources(BucketFiles(training.objects, training.bucket, folder), found, names, until=until)
    digester = Digester()
    for step in scalar_steps(reading, names):
        digester.fold(step)
    return digester.done()
