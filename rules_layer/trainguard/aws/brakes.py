"""The operators' brakes in one SSM parameter, which no deployment makes, writes or deletes.

SSM knows no conditional write. Each write has a version: who finds that another one lies between what was read and what
was written reads it, and writes both joined.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.aws_errors import translated, unless
from trainguard.core.brakes import Brake, BrakeList, joined, read_brakes, written_brakes
from trainguard.core.errors import PortUnavailableError, StateConflictError
from trainguard.core.ports import Journal

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

# A function asks again after so many seconds: a brake reaches running jobs within a minute.
KNOWN_S = 30.0

ATTEMPTS = 8
_MISSING = frozenset({"ParameterNotFound", "ParameterVersionNotFound"})
_DESCRIPTION = "Operators' brakes of TrainGuard: `trainguard brake list`. No deployment writes it."

Change = Callable[[Sequence[Brake]], Sequence[Brake]]


class SsmBrakes:
    """Reads and changes the list; ``client`` is called first then."""

    def __init__(self, *, client: "Callable[[], SSMClient]", parameter: str) -> None:
        self._client = client
        self.parameter = parameter

    def read(self) -> BrakeList:
        """Return the list as it is now; raises PortUnavailableError."""
        return self._stored()[1]

    def change(self, change: Change, *, now: float) -> BrakeList:
        """Write the list as ``change`` makes it of the stored one, joined with what others write in the meantime.

        Return what is in force then, with the faults of what was there and could not be read, which is not written
        again. Raises BrakesFullError, PortUnavailableError, and StateConflictError where others never cease to write.
        """
        version, before = self._stored()
        wanted = joined(change(before.brakes))
        faults = before.faults
        for _ in range(ATTEMPTS):
            document = written_brakes(wanted, now=now)
            with translated("ssm", "PutParameter"):
                written = self._client().put_parameter(
                    Name=self.parameter, Value=document, Type="String", Overwrite=True, Description=_DESCRIPTION
                )["Version"]
            others = [self._stored(each)[1] for each in range(version + 1, written)]
            together = joined([*wanted, *(brake for other in others for brake in other.brakes)])
            faults += tuple(fault for other in others for fault in other.faults)
            if together == wanted:
                return BrakeList(wanted, faults)
            version, wanted = written, together
        raise StateConflictError(self.parameter, version)

    def _stored(self, version: int | None = None) -> tuple[int, BrakeList]:
        name = self.parameter if version is None else f"{self.parameter}:{version}"
        with translated("ssm", "GetParameter"):
            answer = unless(_MISSING, lambda: self._client().get_parameter(Name=name))
        if answer is None:
            return 0, BrakeList()
        return answer["Parameter"]["Version"], read_brakes(answer["Parameter"]["Value"])


class KnownBrakes:
    """The brakes as a function knows them, at most `KNOWN_S` old.

    Where they cannot be read, those read before hold; without any, none does: jobs are evaluated, and alerts go out.
    """

    def __init__(self, stored: SsmBrakes, journal: Journal, now: Callable[[], float] = time.monotonic) -> None:
        self._stored = stored
        self._journal = journal
        self._now = now
        self._asked_at: float | None = None
        self._known = BrakeList()

    def __call__(self) -> BrakeList:
        if self._asked_at is None or self._now() - self._asked_at >= KNOWN_S:
            self._asked_at = self._now()
            try:
                self._known = self._stored.read()
            except PortUnavailableError as fault:
                self._journal.count("brakes_unread", reason=str(fault))
            for each in self._known.faults:
                self._journal.count("brakes_unread", reason=each)
        return self._known

    def count_in_force(self, now: float) -> None:
        """Count those in force at ``now``, epoch seconds."""
        in_force = self().in_force(now)
        if in_force:
            reason = msgspec.json.encode(in_force).decode()
            self._journal.count("brakes_in_force", len(in_force), reason=reason)
