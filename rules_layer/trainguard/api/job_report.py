"""A job's report as an object: what it found, its time lines and steps as columns, and its page."""

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from trainguard.api.columns import Columns
from trainguard.ledger.document import LedgerEntry
from trainguard.report.build import BuiltReport
from trainguard.report.document import FindingEntry, Report, Verdict
from trainguard.report.files import report_files
from trainguard.report.html.render import render_report
from trainguard.timeline.series import Band, NodeTimeline, TimeAxis, Timelines

_LEDGER = ("node", "bucket", "gpu_seconds", "share", "usd", "estimated", "steps", "sm_share")
_FINDINGS = (
    *("rule", "severity", "ongoing", "worst", "nodes_affected", "nodes", "affected_share", "wasted_share"),
    *("lost", "currency", "explained_by", "reason", "advice"),
)
_RULES = ("rule", "status", "severity", "measured", "threshold", "unit", "worst", "data_points", "reason")
_TIME_LINES = ("time", "node", "gpu", "quantity", "mean", "low", "high")
_STEPS = ("time", "node", "process", "mode", "mean_s", "low_s", "high_s")


class JobReport:
    """The report of a profile that `analyze` evaluated.

    Attributes
    ----------
    document : Report
        What ``report.json`` holds, typed.
    notes : tuple of str
        Sentences on what could not be used beside the profile.
    """

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
    def verdict(self) -> Verdict:
        """The report's first sentences."""
        return self.document.verdict

    @property
    def fired(self) -> tuple[str, ...]:
        """Names of the rules that have fired."""
        return tuple(self.document.fired)

    @property
    def findings(self) -> Columns:
        """The findings, the most severe first: a row for each rule that has fired. Shares are from 0 to 1."""
        return Columns(_FINDINGS, [_finding_row(each) for each in self.document.findings])

    @property
    def rules(self) -> Columns:
        """Every rule with its status and what it measured."""
        return Columns(_RULES, [[getattr(each, name) for name in _RULES] for each in self.document.rules])

    @property
    def ledger(self) -> Columns:
        """Where the paid GPU time went: a row a bucket, of the whole job (``node`` is None) and of each node.

        ``share`` is from 0 to 1, of all that was paid for; in the rows of a node, of what was paid for that node.
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
        """Write ``report.html``, ``report.json`` and the files of the managed service; return their paths by name.

        Raises
        ------
        OSError
            When the folder cannot be written to.
        """
        places = {}
        for name, body in report_files(self._built).items():
            places[name] = Path(folder) / name
            places[name].parent.mkdir(parents=True, exist_ok=True)
            places[name].write_bytes(body)
        return places

    def __repr__(self) -> str:
        """Return the verdict's sentences."""
        said = (self.verdict.health, self.verdict.change, self.verdict.cost)
        return "\n".join([f"<JobReport {self.job}>", *(text for text in said if text)])

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for a notebook: its script reaches nothing outside the frame."""
        page = escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width:100%;height:720px;border:0"></iframe>'


def _ledger_row(node: str | None, entry: LedgerEntry) -> list[Any]:
    return [node, *(getattr(entry, name) for name in _LEDGER[1:])]


def _finding_row(finding: FindingEntry) -> list[Any]:
    lost = None if finding.cost is None else finding.cost.lost
    money = {"lost": lost, "currency": None if finding.cost is None else finding.cost.currency}
    return [money[name] if name in money else getattr(finding, name) for name in _FINDINGS]


def _line_rows(lines: Timelines) -> Iterator[tuple[Any, ...]]:
    for node in lines.nodes:
        for gpu, quantity, band in _bands(node):
            for index, mean in enumerate(band.mean):
                if mean is not None:
                    low = None if band.low is None else band.low[index]
                    high = None if band.high is None else band.high[index]
                    yield _time(lines.axis, index), node.node, gpu, quantity, mean, low, high


def _bands(node: NodeTimeline) -> Iterator[tuple[str | None, str, Band]]:
    for gpu in node.gpus:
        yield gpu.gpu, "gpu_utilization", gpu.utilization
        if gpu.memory is not None:
            yield gpu.gpu, "gpu_memory", gpu.memory
    for quantity in ("cpu", "io_wait", "host_memory", "network"):
        band: Band | None = getattr(node, quantity)
        if band is not None:
            yield None, quantity, band


def _step_rows(lines: Timelines) -> Iterator[tuple[Any, ...]]:
    for each in lines.steps:
        for index, mean in enumerate(each.mean_s):
            if mean is not None:
                at = _time(lines.axis, index)
                yield at, each.node, each.process, each.mode, mean, each.low_s[index], each.high_s[index]


def _time(axis: TimeAxis, index: int) -> float:
    return axis.start + index * axis.bucket_s
