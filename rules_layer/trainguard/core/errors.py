"""The one exception hierarchy: every error names the object, the field, the value and what would be right."""

import traceback
from collections.abc import Mapping, Sequence
from pathlib import PurePath


class TrainGuardError(Exception):
    """Base of everything that TrainGuard raises on purpose."""


def error_text(error: BaseException) -> str:
    """Return an error's kind and text; of one that nobody foresaw also the innermost line outside of numpy."""
    kind = type(error).__name__
    if not isinstance(error, TrainGuardError):
        lines = traceback.extract_tb(error.__traceback__)
        if own := [each for each in lines if "numpy" not in PurePath(each.filename).parts]:
            kind += f" in {'/'.join(PurePath(own[-1].filename).parts[-2:])}:{own[-1].lineno}"
    return f"{kind}: {error}"


class UnusableError(TrainGuardError):
    """Something that cannot be used: ``place`` names it, ``reason`` is a clause, ``sentence`` holds both."""

    sentence = "{place!r} cannot be used: {reason}"

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(self.sentence.format(place=place, reason=reason))


class RemedyError(TrainGuardError):
    """Something that a person can put right; ``remedy`` is a sentence."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what}. {remedy}")


class RuleConfigError(TrainGuardError):
    """A rule parameter or tag that cannot be used; ``expected`` is a phrase, ``source`` None where it is not known."""

    def __init__(self, rule: str, field: str, value: object, expected: str, source: str | None = None) -> None:
        self.rule = rule
        self.field = field
        self.value = value
        self.expected = expected
        self.source = source
        given = f", given by {source}" if source else ""
        super().__init__(f"{rule}: parameter {field} is {value!r}{given}, expected {expected}")

    def given_by(self, source: str | None) -> "RuleConfigError":
        return RuleConfigError(self.rule, self.field, self.value, self.expected, source)


class RuleLoadError(RuleConfigError):
    """A rule of a deployment's own package that cannot be used; ``field`` is what of it is wrong."""

    def __init__(self, rule: str, field: str, value: object, expected: str) -> None:
        super().__init__(rule, field, value, expected)
        self.args = (f"{rule}: {field} is {value!r:.500}, expected {expected}",)

    def given_by(self, source: str | None) -> "RuleLoadError":
        del source
        return self


class SyntheticJobError(TrainGuardError):
    """A synthetic job of `trainguard.testing` that cannot be made; ``field`` is what of it is wrong."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field = field
        super().__init__(f"synthetic job: {field} is {value!r}, expected {expected}")


class SyntheticRunError(TrainGuardError):
    """The engine failed while it ran a rule over a synthetic job: a defect of TrainGuard, not of the rule."""

    def __init__(self, rule: str, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(f"the engine failed while {rule} ran: {'; '.join(reasons)}")


class ParameterFileError(UnusableError):
    """A file of rule parameters that cannot be read as such."""

    sentence = "parameter file {place!r} cannot be used: {reason}"


class PriceTableError(UnusableError):
    """A price table that cannot be read as such."""

    sentence = "price table {place!r} cannot be used: {reason}"


class MissingLibraryError(TrainGuardError):
    """A library that TrainGuard does not bring along, and that a call needs."""

    def __init__(self, call: str, library: str) -> None:
        super().__init__(f"{call} needs {library}, which is not installed: pip install {library}")


class TooManyNamesError(TrainGuardError):
    """Objects brought more names than are taken: ``most`` of ``what``."""

    def __init__(self, what: str, most: int, of_which: str) -> None:
        super().__init__(f"{what}: there are {most:,} {of_which}, and no more are taken")


class UnreadableKeyError(UnusableError):
    """An S3 key that is not an object of a profile which TrainGuard reads."""

    sentence = "object {place!r} is not a profile object: {reason}"


class TelemetryFormatError(UnusableError):
    """An object of which nothing can be read."""

    sentence = "object {place!r} cannot be read: {reason}"


class KernelTraceError(UnusableError):
    """A kernel trace of which nothing can be read, or a place without one."""

    sentence = "trace {place!r} cannot be read: {reason}"


class IndexNotReadyError(TelemetryFormatError):
    """An index of tensors that is not whole JSON, or says nothing: it is still being written, or broken."""


class TensorMissingError(TrainGuardError):
    """A step holds no entries of a tensor, for example because only reductions of it were saved."""

    def __init__(self, tensor: str, step: int) -> None:
        super().__init__(f"tensor {tensor} at step {step}: its entries were not saved")


class TensorTooLargeError(TrainGuardError):
    """A tensor is larger than what a rule may hold in memory."""

    def __init__(self, tensor: str, step: int, size: int, most: int) -> None:
        super().__init__(f"tensor {tensor} at step {step}: {size:,} bytes, expected at most {most:,}")


class TensorUnusableError(TrainGuardError):
    """A tensor that was read, and that a rule cannot use; ``reason`` is a clause."""

    def __init__(self, tensor: str, step: int, reason: str) -> None:
        super().__init__(f"tensor {tensor} at step {step}: {reason}")


class RunMissingError(UnusableError):
    """Another run, which a rule compares with, does not exist or may not be read."""

    sentence = "run {place!r}: {reason}"


class JobFileError(TrainGuardError):
    """A ``job.json`` that does not say what a job is; ``field`` None stands for the file as a whole."""

    def __init__(self, key: str, field: str | None, value: object, expected: str) -> None:
        self.field = field
        what = "it" if field is None else f"field {field}"
        super().__init__(f"job file {key!r} cannot be used: {what} is {value!r:.200}, expected {expected}")


class MessageError(TrainGuardError):
    """A queue message that is not an event which TrainGuard knows."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"message field {field} is {value!r}, expected {expected}")


class RuleFailedError(TrainGuardError):
    """A rule that raised on a stream, and is not run there again."""

    def __init__(self, rule: str, fault: str) -> None:
        self.rule = rule
        self.fault = fault
        super().__init__(f"The rule failed: {fault}.")


class StateConflictError(TrainGuardError):
    """Another writer moved the item's Version since it was read: read again and re-apply."""

    def __init__(self, item: str, version: int) -> None:
        super().__init__(f"item {item} no longer has Version {version}")


class StateCodecError(TrainGuardError):
    """Stored state that this version of the code cannot decode."""

    def __init__(self, item: str, codec: int, reason: str) -> None:
        self.item = item
        super().__init__(f"item {item} has Codec {codec}: {reason}")


class StateDamagedError(StateCodecError):
    """Stored state whose bytes are damaged: it is computed again from what S3 has."""


class TimelinePartError(UnusableError):
    """A part of a job's time lines that cannot be used, or does not belong to the others."""

    sentence = "part {place!r} of the time lines cannot be used: {reason}"


class ObjectMissingError(TrainGuardError):
    """An S3 object that was announced or listed and is not there any more."""

    def __init__(self, bucket: str, key: str) -> None:
        super().__init__(f"object s3://{bucket}/{key} does not exist")


class UnknownJobError(TrainGuardError):
    """A job that has no item in Jobs."""

    def __init__(self, job: str) -> None:
        super().__init__(f"job {job!r} is not known: no profile object and no state change of it was seen")


class StateGoneError(TrainGuardError):
    """A job whose items in NodeState have expired, so that its rules cannot be asked any more."""

    def __init__(self, job: str) -> None:
        super().__init__(
            f"job {job!r} has no state any more: its items have expired; `trainguard report s3://…` reads its profile"
        )


class ReportPageError(TrainGuardError):
    """A report whose page could not be made; ``files`` are its other files, by name, in the order to write them."""

    def __init__(self, job: str, fault: Exception, files: Mapping[str, bytes]) -> None:
        self.files = files
        super().__init__(f"report.html of job {job!r} cannot be made: {type(fault).__name__}: {fault}")


class ReportRunError(TrainGuardError):
    """A run of a report whose name is none of an execution."""

    def __init__(self, run: object) -> None:
        super().__init__(f"run {run!r} cannot be used, expected the name of an execution: A-Z, a-z, 0-9, - and _")


class ReportPartError(UnusableError):
    """An object among the parts of a report that cannot be read as such."""

    sentence = "part {place!r} of a report cannot be read: {reason}"


class PortUnavailableError(TrainGuardError):
    """A store or service did not answer; the same call may succeed later."""

    def __init__(self, service: str, operation: str, reason: str) -> None:
        self.operation = operation
        super().__init__(f"{service}.{operation} failed: {reason}")


class EnvironmentConfigError(TrainGuardError):
    """Environment variables of a function that are missing or wrong, all of them at once."""

    def __init__(self, function: str, faults: list[str]) -> None:
        self.function = function
        self.faults = faults
        super().__init__(f"{function}: " + "; ".join(faults))


class EmptyProfileError(TrainGuardError):
    """A profile without a single system file: there is nothing that a window could start at."""

    def __init__(self, files: int, framework_files: int) -> None:
        super().__init__(
            f"profile has {files} files, {framework_files} of them framework files, and no system file; "
            "expected system/incremental/<YYYYMMDDHH>/<epoch s>.algo-<n>.json"
        )


class ProfileSourceError(UnusableError):
    """A folder or S3 prefix in which no single profile can be read."""

    sentence = "source {place!r} {reason}"


class NoProfileError(ProfileSourceError):
    """A place without a run: nothing that a rule could judge.

    ``reason`` says by default what was looked for, and ``met`` which files are there.
    """

    def __init__(self, place: str, reason: str = "", *, met: str = "") -> None:
        looked_for = (
            "looked for profiler-output with system/ or framework/ in it, debug-output, event files of TensorBoard "
            "(tfevents in their names), trainer_state.json, a CSV log or lines of JSON with a column step or epoch and "
            "one such as loss, a log that names a loss three times, run files of W&B (.wandb), runs and databases of "
            "MLflow, and files of neuron-monitor, Dynolog and nvidia-smi"
        )
        nothing = f"holds no profile and no run: {looked_for}{f'; met {met}' if met else ''}"
        super().__init__(place, reason or nothing)


class SeveralRunsError(ProfileSourceError):
    """A place with several runs, where one is expected."""

    def __init__(self, place: str, runs: Sequence[str]) -> None:
        self.runs = runs
        shown = ", ".join(runs[:3]) + (", …" if len(runs) > 3 else "")
        super().__init__(place, f"holds {len(runs):,} runs ({shown}), expected one: name it")


class UnreadableRunError(ProfileSourceError):
    """A run of which nothing is left: ``parts`` of it, one or more, were damaged."""

    def __init__(self, place: str, reason: str, parts: int) -> None:
        self.parts = parts
        super().__init__(place, reason)


class WorkerDiedError(TrainGuardError):
    """A process that parsed objects ended without an answer."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(f"a parser ended with exit code {exit_code}, expected an answer; is there memory enough?")


class LaunchConfigError(TrainGuardError):
    """A value of a launch helper that no training job could be started with; ``expected`` is a phrase."""

    def __init__(self, where: str, field: str, value: object, expected: str) -> None:
        self.where = where
        self.field = field
        self.expected = expected
        super().__init__(f"{where}: {field} is {value!r}, expected {expected}")


class OutputError(UnusableError):
    """A folder or file into which reports cannot be written."""

    sentence = "output {place!r} cannot be written: {reason}; expected a folder that can be"


class RequestError(RemedyError):
    """A request on the command line that cannot be carried out; ``remedy`` is a sentence."""


class UnknownNameError(TrainGuardError):
    """A name for which there is nothing; ``similar`` are names that it may stand for."""

    def __init__(self, kind: str, name: str, place: str, similar: Sequence[str]) -> None:
        perhaps = f"; perhaps you mean {' or '.join(similar)}" if similar else ""
        super().__init__(f"there is no {kind} {name!r} in {place}{perhaps}")


class DeploymentError(RemedyError):
    """A deployed stack that a command cannot work with; ``remedy`` is a sentence."""


class CredentialsError(DeploymentError):
    """AWS credentials that are missing, expired or not accepted."""


class RegionError(DeploymentError):
    """No Region to look for the stack in, or none of that name."""


class StackNotFoundError(DeploymentError):
    """A stack that the Region does not have."""


class StackStateError(DeploymentError):
    """A stack whose resources cannot be relied on: being created or deleted, or rolled back."""


class OutputMissingError(DeploymentError):
    """A stack that lacks an output which a command needs."""


class AccessDeniedError(DeploymentError):
    """A call that the credentials in use may not make."""


class ReportRunFailedError(TrainGuardError):
    """An execution of the report machine that ended without a report."""

    def __init__(self, execution: str, status: str, cause: str) -> None:
        super().__init__(f"execution {execution} ended as {status}: {cause or 'no cause given'}")
