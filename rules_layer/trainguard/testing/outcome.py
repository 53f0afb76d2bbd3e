"""The outcome of a rule on a synthetic job: its rows, its alerts, and its exceptions."""

from dataclasses import dataclass

from trainguard.core.finding import Episode, Finding
from trainguard.core.records import AlertKind, RuleRow, Status


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert to people at ``at_s``, seconds since the job's start; a fire's ``finding`` has the new episode."""

    kind: AlertKind
    at_s: float
    finding: Finding


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a rule; checks return it or raise AssertionError. ``rows`` begin with the job's."""

    rule: str
    rows: tuple[RuleRow, ...]
    alerts: tuple[Alert, ...]
    raised: tuple[BaseException, ...]

    @property
    def row(self) -> RuleRow:
        """The job's row."""
        return self.rows[0]

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """When and where the rule's condition held on the job, oldest first; the last one may go on."""
        return self.row.finding.episodes

    @property
    def fires(self) -> tuple[Alert, ...]:
        """The alerts that say that the rule fired."""
        return tuple(each for each in self.alerts if each.kind is AlertKind.FIRE)

    @property
    def fired(self) -> bool:
        """Whether the rule fired, be it over since or not; AssertionError when it is in ERROR, which is no answer."""
        self._check_no_error()
        return bool(self.fires)

    def row_of(self, node: str) -> RuleRow:
        """Return a node's row; AssertionError when it has none."""
        for row in self.rows:
            if row.node == node:
                return row
        nodes = ", ".join(row.node for row in self.rows if row.node is not None) or "none"
        raise AssertionError(f"{self.rule} has no row of {node}; it has rows of these nodes: {nodes}")

    def assert_fired(self, *, node: str | None = None, times: int | None = None) -> "Outcome":
        """Check that the rule fired: on ``node`` where given, and just as many ``times`` where given."""
        self._check_no_error()
        fired = self.row if node is None else self.row_of(node)
        if fired.times_fired == 0:
            raise AssertionError(f"{self.rule} did not fire{_on(node)}. {self._text()}")
        if times is not None and fired.times_fired != times:
            raise AssertionError(f"{self.rule} fired {fired.times_fired} times{_on(node)}, not {times}. {self._text()}")
        return self

    def assert_not_fired(self, *, node: str | None = None) -> "Outcome":
        """Check that the rule judged the job, or the node, and never fired; a rule in ERROR has judged nothing."""
        self._check_no_error()
        quiet = self.row if node is None else self.row_of(node)
        if quiet.times_fired:
            raise AssertionError(f"{self.rule} fired{_on(node)}. {self._text()}")
        return self

    def assert_status(self, status: Status, *, node: str | None = None) -> "Outcome":
        """Check the final status of the job's row, or of a node's."""
        if status is not Status.ERROR:
            self._check_no_error()
        row = self.row if node is None else self.row_of(node)
        if row.status is not status:
            raise AssertionError(f"{self.rule} is {row.status.value}{_on(node)}, not {status.value}. {self._text()}")
        return self

    def assert_error(self, text: str) -> "Outcome":
        """Check that the rule is in ERROR, for a reason that contains ``text``."""
        reasons = [row.finding.reason for row in self.rows if row.status is Status.ERROR]
        if not any(text in reason for reason in reasons):
            found = f"its errors: {reasons}" if reasons else f"it has no error. {self._text()}"
            raise AssertionError(f"{self.rule} is not in ERROR for {text!r}; {found}")
        return self

    def _check_no_error(self) -> None:
        failed = next((row for row in self.rows if row.status is Status.ERROR), None)
        if failed is not None:
            cause = self.raised[0] if self.raised else None
            raise AssertionError(f"{self.rule} is in ERROR{_on(failed.node)}: {failed.finding.reason}") from cause

    def _text(self) -> str:
        rows = (f"{row.node or 'the job'}: {row.status.value}, {row.finding.reason}" for row in self.rows)
        return "It says about " + " About ".join(rows)


def _on(node: str | None) -> str:
    return "" if node is None else f" on {node}"
