"""The Python API: a profile evaluated in this process, and its report as an object."""

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trainguard.core.errors import MissingLibraryError
from trainguard.engine.installed import FAMILIES
from trainguard.ledger.document import LedgerEntry
from trainguard.local.analysis import Progress, evaluated_profile, report_of
from trainguard.local.runs import open_job
from trainguard.local.settings import described_job, given_settings
from trainguard.pricing.table import PriceTable
from trainguard.report.document import FindingEntry, Headline, Report
from trainguard.report.html.render import render_report
from trainguard.report.job.build import BuiltReport, report_files
from trainguard.report.timeline.series import TimeAxis, Timelines, bands_of
from trainguard.rules.parameters import Defaults

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients

_ROWS_SHOWN = 20


class Columns(Mapping[str, Sequence[Any]]):
    """A read-only table of ``rows`` as long as ``names``; iterate over it for the names of its columns."""

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._rows = [tuple(row) for row in rows]
        self._columns = {name: [row[index] for row in self._rows] for index, name in enumerate(names)}

    def __getitem__(self, name: str) -> Sequence[Any]:
        """Return a column; KeyError when there is none of that name."""
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the columns."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of columns, as of every mapping; `rows` has the rows."""
        return len(self._columns)

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows, each as a mapping by column."""
        return [dict(zip(self._columns, row, strict=True)) for row in self._rows]

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame, times in epoch seconds; raises MissingLibraryError without pandas."""
        try:
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError as missing:
            raise MissingLibraryError("to_pandas", "pandas") from missing
        return pandas.DataFrame(self._columns, columns=list(self._columns))

    def __repr__(self) -> str:
        """Return the names and the number of rows."""
        return f"<Columns {', '.join(self._columns)}: {len(self._rows):,} rows>"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self._columns)
        lines = (
            "<tr>" + "".join(f"<td>{'' if each is None else escape(str(each))}</td>" for each in row) + "</tr>"
            for row in self._rows[:_ROWS_SHOWN]
        )
        more = len(self._rows) - _ROWS_SHOWN
        rest = f"<p>and {more:,} more rows</p>" if more > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{rest}"


_LEDGER = ("node", "bucket", "gpu_seconds", "share", "usd", "estimated", "steps", "sm_share")
_FINDINGS = (
    *("rule", "severity", "ongoing", "worst", "nodes_affected", "nodes", "affected_share", "wasted_share"),
    *("lost", "currency", "explained_by", "reason", "advice"),
)
_RULES = ("rule", "status", "severity", "measured", "threshold", "unit", "worst", "data_points", "reason")
_TIME_LINES = ("time", "node", "gpu", "quantity", "mean", "low", "high")
_STEPS = ("time", "node", "process", "mode", "mean_s", "low_s", "high_s")


class JobReport:
    """The report of a profile that `analyze` evaluated; ``notes`` are sentences on what could not be used."""

    def __init__(self, built: BuiltReport, notes: tuple[str, ...] = ()) -> None:
        self._built = built
        self.notes = notes

    @property
    def document(self) -> Report:
        """What ``report.json`` holds."""
        return self._built.report

    @property
    def job(self) -> str:
        """The job's name."""
        return self.document.job.name

    @property
    def healthy(self) -> bool:
        """Whether all rules that apply have judged all nodes, and none has fired."""
        return self.document.healthy

    @property
    def verdict(self) -> Headline:
        """The report's first sentences."""
        return self.document.verdict

    @property
    def fired(self) -> tuple[str, ...]:
        """Names of the rules that have fired."""
        return tuple(self.document.fired)

    @property
    def findings(self) -> Columns:
        """The findings, the most severe first: a row for each rule that has fired. Shares are from 0 to 1."""
        return Columns(_FINDINGS, [_finding_row(each, self.document.cost.currency) for each in self.document.findings])

    @property
    def rules(self) -> Columns:
        """Every rule with its status and what it measured."""
        return Columns(_RULES, [[getattr(each, name) for name in _RULES] for each in self.document.rules])

    @property
    def ledger(self) -> Columns:
        """Where the paid GPU time went: a row a bucket, of the whole job (``node`` is None) and of each node.

        ``share``, 0 to 1, is of all that was paid for; in the rows of a node, for that node.
        """
        rows = [_ledger_row(None, entry) for entry in self.document.ledger]
        nodes = self.document.ledger_by_node
        return Columns(_LEDGER, [*rows, *(_ledger_row(each.node, entry) for each in nodes for entry in each.ledger)])

    @property
    def time_lines(self) -> Columns:
        """Utilization over time: a row a bucket, node, GPU and quantity.

        ``time`` is the start of the bucket, epoch seconds; ``gpu`` is None for quantities of the node. Percentages are
        from 0 to 100, ``network`` is in bytes per second. Buckets without a sample are left out.
        """
        lines = self.document.timelines
        return Columns(_TIME_LINES, [] if lines is None else list(_line_rows(lines)))

    @property
    def steps(self) -> Columns:
        """Durations of steps over time, seconds: a row a bucket, process and mode that has steps."""
        lines = self.document.timelines
        return Columns(_STEPS, [] if lines is None else list(_step_rows(lines)))

    def to_dict(self) -> dict[str, Any]:
        """Return what ``report.json`` holds."""
        document: dict[str, Any] = msgspec.to_builtins(self.document)
        return document

    def to_html(self) -> str:
        """Return the page: one file that needs nothing else."""
        return render_report(self.document)

    def save(self, folder: str | Path) -> Mapping[str, Path]:
        """Write ``report.html``, ``report.json`` and the managed service's files; return paths by name."""
        places = {}
        for name, body in report_files(self._built).items():
            places[name] = Path(folder) / name
            places[name].parent.mkdir(parents=True, exist_ok=True)
            places[name].write_bytes(body)
        return places

    def __repr__(self) -> str:
        """Return the verdict's sentences."""
        text = (self.verdict.health, self.verdict.change, self.verdict.cost)
        return "\n".join([f"<JobReport {self.job}>", *(text for text in text if text)])

    def _repr_html_(self) -> str:
        """Show the page in a frame of its own: its script reaches nothing outside the frame."""
        page = escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width:100%;height:720px;border:0"></iframe>'


def _ledger_row(node: str | None, entry: LedgerEntry) -> list[Any]:
    return [node, *(getattr(entry, name) for name in _LEDGER[1:])]


def _finding_row(finding: FindingEntry, currency: str | None) -> list[Any]:
    known = {"currency": None if finding.lost is None else currency}
    return [known[name] if name in known else getattr(finding, name) for name in _FINDINGS]


def _line_rows(lines: Timelines) -> Iterator[tuple[Any, ...]]:
    for node in lines.nodes:
        for gpu, quantity, band in bands_of(node):
            for index, mean in enumerate(band.mean):
                if mean is not None:
                    low = None if band.low is None else band.low[index]
                    high = None if band.high is None else band.high[index]
                    yield _time(lines.axis, index), node.node, gpu, quantity, mean, low, high


def _step_rows(lines: Timelines) -> Iterator[tuple[Any, ...]]:
    for each in lines.steps:
        for index, mean in enumerate(each.mean_s):
            if mean is not None:
                at = _time(lines.axis, index)
                yield at, each.node, each.process, each.mode, mean, each.low_s[index], each.high_s[index]


def _time(axis: TimeAxis, index: int) -> float:
    return axis.start + index * axis.bucket_s


def analyze(
    source: str | os.PathLike[str],
    *,
    parameters: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    prices: PriceTable | str | os.PathLike[str] | None = None,
    instance_type: str | None = None,
    framework_expected: bool = False,
    defaults: Defaults = "documented",
    time_lines: bool = True,
    clients: "Clients | None" = None,
    progress: Progress | None = None,
) -> JobReport:
    """Evaluate the profile of a job by all rules, as ``trainguard analyze`` and ``trainguard report`` do.

    ``source`` is a folder or file of a run, or ``s3://bucket/prefix``, which needs boto3 and is read with ``clients``.
    ``parameters`` are for example ``{"<Rule>": {"<parameter>": 60}}``, or a JSON file of them; rules that are not given
    have ``defaults``. ``prices`` are by default the packaged table, ``instance_type`` what ``job.json`` beside the
    profile says. Without ``time_lines``, `JobReport.time_lines` and `steps` are empty.

    Raises SeveralRunsError, which names them, where several runs are there; ProfileSourceError or NoProfileError where
    none is; ParameterFileError, RuleConfigError or PriceTableError when parameters or prices cannot be used;
    PortUnavailableError; WorkerDiedError.
    """
    profile = open_job(os.fspath(source), clients)
    given = given_settings(parameters, prices, instance_type, framework_expected=framework_expected, defaults=defaults)
    job, notes = described_job(profile.source, given.job(profile.root.job))
    plan = FAMILIES.plan(job, defaults=defaults, prices=given.prices)
    done = evaluated_profile(profile, job, plan, progress, timelines=time_lines, training=time_lines)
    return JobReport(report_of(done), (*profile.notes, *notes, *done.notes))
