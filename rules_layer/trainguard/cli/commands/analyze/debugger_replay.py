"""The ``compatible`` reading over a profile: what the managed service would have written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainguard.cli.commands.analyze.debugger_settings import settings_by_rule
from trainguard.cli.commands.analyze.outcome import FOREIGN, Outcome, RuleVerdict
from trainguard.cli.output.files import read_body
from trainguard.cli.output.progress import Progress
from trainguard.debugger_replay.parameters import resolve_compatible_parameters, resolve_scan_interval_us
from trainguard.debugger_replay.replay import replay
from trainguard.errors import EmptyProfileError, NoProfileError, RuleFailedError
from trainguard.local.places import open_place
from trainguard.local.pool import WorkerPool, workers_for
from trainguard.local.sources import ProfileSource
from trainguard.records import Status
from trainguard.report.encode import encode_report
from trainguard.rules.defaults import Defaults

_US_PER_S = 1_000_000


class DebuggerReplay:
    """The reading with a person's settings.

    Parameters
    ----------
    params : Path or None
        File of parameters.
    defaults : {"documented", "shipped"}

    Raises
    ------
    ParameterFileError, RuleConfigError
        When the file cannot be used.
    """

    def __init__(self, *, params: Path | None, defaults: Defaults) -> None:
        self._settings = {} if params is None else settings_by_rule(str(params), read_body(params))
        self._documented = defaults == "documented"
        resolve_compatible_parameters(self._settings, documented=self._documented)

    def open(self, place: str) -> "OpenedReplay":
        """Find the profile at a place; raises what `open_place` does."""
        return OpenedReplay(open_place(place), self._settings, self._documented)


@dataclass(frozen=True, slots=True)
class OpenedReplay:
    """A profile, and the settings by rule."""

    source: ProfileSource
    settings: Mapping[str, Mapping[str, str]]
    documented: bool

    @property
    def place(self) -> str:
        """Where the profile lies."""
        return self.source.place

    def analyze(self, progress: Progress) -> Outcome:
        """Replay a profile; raises NoProfileError for one without system metrics, which the original waits for."""
        source = self.source
        names = source.names()
        interval_s = resolve_scan_interval_us(self.settings) / _US_PER_S
        try:
            with WorkerPool(workers_for(len(names))) as pool, progress.of_windows(interval_s):
                replayed = replay(
                    source,
                    self.settings,
                    documented_defaults=self.documented,
                    progress=progress.replayed,
                    file_map=pool.map,
                )
        except EmptyProfileError as fault:
            raise NoProfileError(source.place) from fault
        reports = replayed.reports
        lines = [_line(rule, report) for rule, report in reports.items()]
        return Outcome(
            rules=sorted(lines, key=lambda line: not line.fired) + [_failed(*each) for each in replayed.failed.items()],
            files={f"profiler-reports/{rule}.json": encode_report(report) for rule, report in reports.items()},
            unread=dict(sorted(replayed.skipped.items())),
            healthy=_is_healthy(lines, replayed.failed, replayed.skipped),
        )


def _is_healthy(lines: Sequence[RuleVerdict], failed: Mapping[str, str], skipped: Mapping[str, int]) -> bool:
    """Whether some rule had data, none has fired or failed, and everything could be read."""
    judged = any(line.data_points for line in lines)
    unread = sum(amount for kind, amount in skipped.items() if kind != FOREIGN)
    return judged and not any(line.fired for line in lines) and not failed and not unread


def _line(rule: str, report: Mapping[str, Any]) -> RuleVerdict:
    triggered, violations, points = (report[name] for name in ("RuleTriggered", "Violations", "Datapoints"))
    reason = f"triggered {triggered:,} times, {violations:,} violations in {points:,} data points."
    return RuleVerdict(
        rule=rule,
        status=_status(triggered, points),
        reason=reason if points else f"{reason} It has no verdict.",
        times_fired=triggered,
        violations=violations,
        data_points=points,
        parameters=report["RuleParameters"],
    )


def _status(triggered: int, points: int) -> Status:
    """Return a rule's status: what has seen no data point is no all-clear."""
    if triggered:
        return Status.FIRED
    return Status.OK if points else Status.NOT_APPLICABLE


def _failed(rule: str, fault: str) -> RuleVerdict:
    """Return the line of a rule that raised; it has no report."""
    why = str(RuleFailedError(rule, fault))
    return RuleVerdict(
        rule=rule, status=Status.ERROR, reason=why, times_fired=0, violations=0, data_points=0, parameters=""
    )
