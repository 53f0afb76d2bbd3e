"""The words of tables and alerts."""

from enum import StrEnum


class Status(StrEnum):
    """What a rule says about a node or a job."""

    WAITING_FOR_DATA = "WAITING_FOR_DATA"
    WARMING_UP = "WARMING_UP"
    OK = "OK"
    FIRED = "FIRED"
    ERROR = "ERROR"
    NOT_APPLICABLE = "NOT_APPLICABLE"
    DISABLED = "DISABLED"

    @property
    def place(self) -> int:
        """Place in a list for people: 0 comes first."""
        return _STATUS_PLACES[self]


_STATUS_PLACES = {
    Status.FIRED: 0,
    Status.ERROR: 1,
    Status.OK: 2,
    Status.WARMING_UP: 3,
    Status.WAITING_FOR_DATA: 4,
    Status.NOT_APPLICABLE: 5,
    Status.DISABLED: 6,
}


class AlertKind(StrEnum):
    """What an alert reports: a rule fired, its severity rose, it is over; a stop is to come; settings are faulty."""

    FIRE = "fire"
    ESCALATION = "escalation"
    CLEARED = "cleared"
    WARNING = "warning"
    NOTICE = "notice"


class JobStatus(StrEnum):
    """TrainingJobStatus of DescribeTrainingJob, and Unknown for a job that SageMaker does not know."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    COMPLETED = "Completed"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def is_final(self) -> bool:
        """Whether the job can write no more profile objects."""
        return self in {JobStatus.STOPPED, JobStatus.COMPLETED, JobStatus.FAILED}
