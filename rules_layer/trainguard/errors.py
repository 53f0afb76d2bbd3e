"""The one exception hierarchy: every error names the object, the field, the value and what would be right."""


class TrainGuardError(Exception):
    """Base of everything that TrainGuard raises on purpose."""


class RuleConfigError(TrainGuardError):
    """A rule parameter or tag that cannot be used as given.

    Parameters
    ----------
    rule : str
        The rule that the setting belongs to.
    field : str
        The parameter as the user wrote it.
    value : object
        The value as the user wrote it.
    expected : str
        What would be right, as a phrase.
    """

    def __init__(self, rule: str, field: str, value: object, expected: str) -> None:
        self.rule = rule
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(f"{rule}: parameter {field} is {value!r}, expected {expected}")


class ParameterFileError(TrainGuardError):
    """A file of rule parameters that cannot be read as such."""

    def __init__(self, file: str, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(f"parameter file {file!r} cannot be used: {reason}")


class PriceTableError(TrainGuardError):
    """A price table that cannot be read as such."""

    def __init__(self, file: str, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(f"price table {file!r} cannot be used: {reason}")


class ForeignKeyError(TrainGuardError):
    """An S3 key that is not an object of a profile which TrainGuard reads."""

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"object {key!r} is not a profile object: {reason}")


class TelemetryFormatError(TrainGuardError):
    """An object of which nothing can be read."""

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"object {key!r} cannot be read: {reason}")


class DoorbellError(TrainGuardError):
    """A queue message that is not an event which TrainGuard knows."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field = field
        self.value = value
        self.expected = expected
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
        self.item = item
        self.version = version
        super().__init__(f"item {item} no longer has Version {version}")


class StateCodecError(TrainGuardError):
    """Stored state that this version of the code cannot decode."""

    def __init__(self, item: str, codec: int, reason: str) -> None:
        self.item = item
        self.codec = codec
        super().__init__(f"item {item} has Codec {codec}: {reason}")


class ObjectMissingError(TrainGuardError):
    """An S3 object that was announced or listed and is not there any more."""

    def __init__(self, bucket: str, key: str) -> None:
        self.bucket = bucket
        self.key = key
        super().__init__(f"object s3://{bucket}/{key} does not exist")


class UnknownJobError(TrainGuardError):
    """A job that has no item in Jobs."""

    def __init__(self, job: str) -> None:
        self.job = job
        super().__init__(f"job {job!r} is not known: no profile object and no state change of it was seen")


class PortUnavailableError(TrainGuardError):
    """A store or service did not answer; the same call may succeed later."""

    def __init__(self, service: str, operation: str, reason: str) -> None:
        self.service = service
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
        self.files = files
        self.framework_files = framework_files
        super().__init__(
            f"profile has {files} files, {framework_files} of them framework files, and no system file; "
            "expected system/incremental/<YYYYMMDDHH>/<epoch s>.algo-<n>.json"
        )


class ProfileSourceError(TrainGuardError):
    """A folder or S3 prefix in which no single profile can be read."""

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(f"source {place!r} {reason}")


class NoProfileError(ProfileSourceError):
    """A place without a profile: nothing that a rule could judge."""

    def __init__(self, place: str) -> None:
        expected = "expected a profiler-output folder with system/ or framework/ in it"
        super().__init__(place, f"holds no profile, {expected}")


class WorkerDiedError(TrainGuardError):
    """A process that parsed objects ended without an answer."""

    def __init__(self, exit_code: int | None) -> None:
        self.exit_code = exit_code
        super().__init__(f"a parser ended with exit code {exit_code}, expected an answer; is there memory enough?")


class OutputError(TrainGuardError):
    """A folder or file into which reports cannot be written."""

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(f"output {place!r} cannot be written: {reason}; expected a folder that can be")
