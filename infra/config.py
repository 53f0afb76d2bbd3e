"""What a person may choose about a deployment: one validated object, read from CDK context."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

STOP_SWITCH_VALUES = ("enabled", "dry-run", "disabled")
LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 180, 365)

_EMAIL = re.compile(r"[^@\s,]+@[^@\s,]+\.[^@\s,]+")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class DeploymentConfigError(ValueError):
    """Context values that cannot be used, all of them at once."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("context of TrainGuard: " + "; ".join(faults))


@dataclass(frozen=True, slots=True)
class DeploymentConfig:
    """Settings of one deployment.

    Attributes
    ----------
    retain_data : bool
        Whether bucket, tables and logs outlive the stack.
    profile_bucket : str or None
        Name of an existing bucket that profiles are written to; None makes a dedicated one.
    profile_retention_days : int
        Age at which objects of the dedicated bucket expire.
    log_retention_days : int
        Age at which log events expire.
    max_write_units : int
        Highest number of write request units a second that each table accepts.
    evaluator_concurrency : int
        Highest number of evaluators that the queue invokes at once.
    alert_emails, operations_emails : tuple of str
        Subscribers of the rules' alerts, and of the alarms about TrainGuard itself.
    stop_switch : {"enabled", "dry-run", "disabled"}
        First value of the stop switch parameter.
    emulator : bool
        Whether the stack is meant for an emulator on this machine (see `infra.overlay`).
    """

    retain_data: bool = True
    profile_bucket: str | None = None
    profile_retention_days: int = 30
    log_retention_days: int = 30
    max_write_units: int = 2000
    evaluator_concurrency: int = 20
    alert_emails: tuple[str, ...] = ()
    operations_emails: tuple[str, ...] = ()
    stop_switch: Literal["enabled", "dry-run", "disabled"] = "enabled"
    emulator: bool = False

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all settings, which are their names in the context."""
        return tuple(_READERS)

    @classmethod
    def from_context(cls, context: Mapping[str, object]) -> "DeploymentConfig":
        """Read the settings from CDK context, in which ``-c name=value`` gives text and ``cdk.json`` gives JSON values.

        Raises
        ------
        DeploymentConfigError
            When any value cannot be used; the message names every such value.
        """
        faults: list[str] = []
        values: dict[str, object] = {}
        for name, read in _READERS.items():
            if (given := context.get(name)) is None:
                continue
            try:
                values[name] = read(given)
            except ValueError as error:
                faults.append(f"{name} is {given!r}, expected {error}")
        if faults:
            raise DeploymentConfigError(faults)
        return cls(**values)  # type: ignore[arg-type]  # each reader returns its field's type


def _boolean(value: object) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise ValueError("true or false")


def _integer(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        text = str(value)
        if isinstance(value, bool) or not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return read


def _log_retention(value: object) -> int:
    text = str(value)
    if text not in {str(days) for days in LOG_RETENTION_DAYS}:
        raise ValueError("one of " + ", ".join(map(str, LOG_RETENTION_DAYS)))
    return int(text)


def _emails(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError("addresses separated by commas")
    addresses = tuple(part.strip() for part in parts if part.strip())
    if not all(_EMAIL.fullmatch(address) for address in addresses):
        raise ValueError("addresses separated by commas")
    return addresses


def _bucket_name(value: object) -> str:
    if not isinstance(value, str) or not _BUCKET.fullmatch(value):
        raise ValueError("the name of an existing S3 bucket")
    return value


def _stop_switch(value: object) -> str:
    if value not in STOP_SWITCH_VALUES:
        raise ValueError("one of " + ", ".join(STOP_SWITCH_VALUES))
    return str(value)


_READERS: Mapping[str, Callable[[object], object]] = {
    "retain_data": _boolean,
    "profile_bucket": _bucket_name,
    "profile_retention_days": _integer(1, 3650),
    "log_retention_days": _log_retention,
    "max_write_units": _integer(1, 40_000),
    "evaluator_concurrency": _integer(2, 1000),
    "alert_emails": _emails,
    "operations_emails": _emails,
    "stop_switch": _stop_switch,
    "emulator": _boolean,
}
