"""The report of a job as one typed document: what ``report.json`` holds and ``report.html`` shows.

Times are ISO 8601 in UTC unless a field says otherwise. Its JSON schema is published; a change that a reader must know
of raises SCHEMA_VERSION.

``python -m trainguard.report.document > docs/schemas/report-2.json`` renews the published copy.
"""

import re
import sys
from typing import Any, Literal

import msgspec

from trainguard.core.finding import EpisodeEntry, Fact, Patience
from trainguard.core.records import JobStatus
from trainguard.engine.diagnosis.case import Level
from trainguard.kernels.verdict import CaptureVerdict
from trainguard.ledger.document import LedgerEntry, NodeLedgerEntries
from trainguard.planning.document import FinishForecast
from trainguard.render.rule_entry import RuleEntry
from trainguard.report.evaluated_job import NodeCoverage
from trainguard.report.timeline.series import Timelines
from trainguard.report.training.digest import ScalarSeries
from trainguard.report.training.document import TrainingReport
from trainguard.rules.change import ChangeCode


class KernelReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest judged capture of kernel traces shows.

    verdict: What was judged; its files are in the folder of its ``capture`` below ``kernels/``.
    sentence: How busy the GPUs are, what fires, how much of a step the first findings explain, and what snapshots say.
    page, document: Files beside the report; None where nobody wrote them, as on one's own machine.
    captures: Captures that were judged so far.
    waits: Whether newer traces or memory snapshots are there that were not judged yet.
    """

    verdict: CaptureVerdict
    sentence: str
    page: str | None
    document: str | None
    captures: int
    waits: bool


SCHEMA_VERSION: Literal["2"] = "2"

Scope = Literal["state", "full"]
Unit = Literal["money", "seconds", "share", "number"]


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """Three sentences, read first: is the job healthy, what is the one thing to change, what does leaving it cost.

    level: The first sentence in a word. ``healthy`` only where enough was judged, nothing was found, and no sizeable
        time is lost without a reason; ``attention`` for what is small, over or a risk; ``unknown`` where too little was
        judged.
    rule: The rule whose finding is the thing to change first.
    change_code: What ``change`` asks for, for programs.
    wasted_share: Share, 0 to 1, of the paid GPU time that was no compute, as the ledger has it.
    lost: The same in money, in the currency of the report's ``cost``.
    causes: The rules whose findings nothing explains, in the order of what they cost.
    judged, not_judged: The rules that have judged the job, and those that have not and could have found something.
    """

    health: str
    change: str
    cost: str
    level: Level = "unknown"
    rule: str | None = None
    wasted_share: float | None = None
    lost: float | None = None
    causes: list[str] = msgspec.field(default_factory=list)
    judged: list[str] = msgspec.field(default_factory=list)
    not_judged: list[str] = msgspec.field(default_factory=list)
    change_code: ChangeCode = ChangeCode.NOTHING


class FindingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that has fired, as it stands among the others.

    ``affected_share`` (of the worst node's judged time) and ``wasted_share`` (of the paid time of all nodes) are from 0
    to 1. ``lost`` is what it has cost, in the currency of the report's ``cost``, which ``cost`` says in words.
    ``explained_by`` names the rule whose finding is the cause of this one, ``explained_share`` (0 to 1) is the
    part of its loss for which some rule names a cause. ``reasons`` is the part of it (0 to 1) that each of these rules
    accounts for; no two overlap. ``episodes`` are the newest times at which its condition held, oldest first;
    ``earlier_episodes`` counts those before them. Each names 512 nodes and GPUs at most; ``names_left_out`` counts
    those beyond.
    """

    rule: str
    severity: str
    score: float
    ongoing: bool
    affected_share: float | None
    wasted_share: float | None
    worst: str | None
    nodes_affected: int
    nodes: int
    reason: str
    advice: str | None
    lost: float | None
    cost: str | None
    explained_by: str | None
    explained_share: float = 0.0
    reasons: dict[str, float] = msgspec.field(default_factory=dict)
    episodes: list[EpisodeEntry] = msgspec.field(default_factory=list)
    earlier_episodes: int = 0
    names_left_out: int = 0
    finding_kind: str = ""
    facts: list[Fact] = msgspec.field(default_factory=list)


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What the job has cost so far, or in ``note`` why that is not known.

    ``note`` names the price with its source and date, and says where nodes show another number of GPUs than an instance
    of the job's type has. ``instance_hours`` are those that were paid for, of all nodes together.
    """

    spent: float | None
    currency: str | None
    note: str
    instance_hours: float | None = None


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the job's time: ``duration_s`` seconds, ``share`` (0 to 1) of the job's."""

    start: str
    end: str
    duration_s: float
    share: float | None


_FINAL = frozenset(each.value for each in JobStatus if each.is_final)


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The job as a whole; what is not known is None.

    gpus: How many GPUs wrote metrics, all nodes together.
    gpus_of_type: How many an instance of the job's type has, by the price table; None where that is not known.
    started_at, ended_at: As SageMaker says; where it does not, or where a sample is earlier, the first sample; where it
        does not, and the job has ended, the last one.
    duration_s: From the start to the end, of a job that has not ended to ``evaluated_through``.
    evaluated_through: How far the rules have judged.
    initialization, training_loop, finalization: From the job's start to its first step, from there to the end of its
        last step, and on to the job's end; None for a job without steps, the last one also while the job runs.
    steps: How many steps its training processes took, all together.
    data_covered: What was collected, in a sentence.
    data_missing: What was not, a sentence each: nodes that never wrote, gaps, lines that could not be used.
    run_links: The pages of the job's run by tool: ``MLflow``, ``Weights & Biases``, or ``run`` for one that its owner
        names.
    """

    name: str
    arn: str
    status: str
    instance_type: str | None
    instance_count: int | None
    gpus: int
    started_at: str | None
    ended_at: str | None
    duration_s: float | None
    evaluated_through: str | None
    initialization: Span | None
    training_loop: Span | None
    finalization: Span | None
    steps: int | None
    data_covered: str = ""
    data_missing: list[str] = msgspec.field(default_factory=list)
    gpus_of_type: int | None = None
    run_links: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        return self.status in _FINAL


class NotCollected(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the job did not write: what is not known without it, and how to collect it next time.

    What is code in ``how`` stands between backticks.
    """

    what: str
    unknown: str
    how: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A value of two runs, in seconds, as a share from 0 to 1, in the cost's currency, or a plain number."""

    what: str
    unit: Unit
    here: float | None
    there: float | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What is other in another run, of the job ``job`` and the verdict ``level``.

    ledger: Shares of the paid GPU time, that which differs most first.
    found_here, found_there: The rules that found something in one of both alone.
    losses: Those of the other run.
    """

    job: str
    level: Level
    totals: list[Change]
    ledger: list[Change]
    steps: list[Change]
    loss: list[Change]
    found_here: list[str]
    found_there: list[str]
    losses: list[ScalarSeries]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A job's report.

    scope: Made from the rules' state alone, within seconds of a fire; or with the profile and tensors read again.
    final: Whether the job has ended and all of it was judged.
    healthy: Whether the verdict's level is ``healthy``: nothing has fired, and nothing was left unjudged.
    summary: The findings in one sentence, and how many rules judged.
    rules: Fired ones first, the most severe on top.
    kernels: What the newest capture of kernel traces shows; None before one was judged.
    comparison: With another run; None where none was asked for.
    training: What the job's tensors and scalars show; None of a job without them, and in scope ``state``.
    ledger: Where the paid GPU time went: each GPU-second in one bucket; empty where no GPU is known.
    ledger_by_node: The same of each node, of 512 at most.
    goodput: Share, 0 to 1, of the paid GPU time that was compute in steps that counted.
    timelines: None in scope ``state``, and of a job without a profile.
    """

    schema_version: Literal["2"] = SCHEMA_VERSION
    generated_at: str
    scope: Scope
    final: bool
    healthy: bool
    verdict: Headline
    summary: str
    fired: list[str]
    findings: list[FindingEntry]
    cost: Spending
    job: JobSummary
    coverage: list[NodeCoverage]
    not_collected: list[NotCollected]
    rules: list[RuleEntry]
    ledger: list[LedgerEntry] = msgspec.field(default_factory=list)
    ledger_by_node: list[NodeLedgerEntries] = msgspec.field(default_factory=list)
    goodput: float | None = None
    finish: FinishForecast | None = None
    kernels: KernelReport | None = None
    comparison: Comparison | None = None
    training: TrainingReport | None = None
    timelines: Timelines | None = None


_NO_SERIES = b'"training": null,\n  "timelines": null\n}'


def encode_document(report: Report) -> bytes:
    """Encode a report: indented, training and time lines in a line each, NaN and infinities as null."""
    bare = msgspec.structs.replace(report, training=None, timelines=None)
    head = msgspec.json.format(msgspec.json.encode(bare), indent=2).removesuffix(_NO_SERIES)
    training, timelines = msgspec.json.encode(report.training), msgspec.json.encode(report.timelines)
    return head + b'"training": ' + training + b',\n  "timelines": ' + timelines + b"\n}"


DIALECT = "https://json-schema.org/draft/2020-12/schema"
IDENTITY = f"urn:trainguard:report:{SCHEMA_VERSION}"
OMITTING = frozenset(each.__name__ for each in (Fact, Patience) if each.__struct_config__.omit_defaults)

_REFERENCE = "#/$defs/{name}"
# A field of a docstring: ``name: text``, or ``name : type`` with the text on the next line.
_FIELDS = re.compile(
    r"^    (?P<names>\w+(?:, \w+)*)(?: : .*\n        |: )(?P<text>.*\n(?:        .*\n?)*)", re.MULTILINE
)


def report_schema(document: type[msgspec.Struct] = Report, *, identity: str = IDENTITY) -> dict[str, Any]:
    """Return the schema: every field is there, but for those of `OMITTING` that are as usual, and no other is."""
    (reference,), types = msgspec.json.schema_components([document], ref_template=_REFERENCE)
    for name, described in types.items():
        if "properties" in described:
            if name not in OMITTING:
                described["required"] = list(described["properties"])
            described["additionalProperties"] = False
            _describe_fields(described)
    return {
        "$schema": DIALECT,
        "$id": identity,
        "title": "Report of a training job",
        **reference,
        "$defs": dict(sorted(types.items())),
    }


def encode_schema(schema: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def _describe_fields(described: dict[str, Any]) -> None:
    text, properties = f"{described.get('description', '')}\n", described["properties"]
    found = [match for match in _FIELDS.finditer(text) if {*match["names"].split(", ")} & properties.keys()]
    summary, _, _ = text[: found[0].start() if found else None].partition("Attributes\n")
    for match in found:
        for name in match["names"].split(", "):
            if name in properties:
                properties[name]["description"] = " ".join(match["text"].split())
    described["description"] = " ".join(summary.split())


if __name__ == "__main__":
    sys.stdout.buffer.write(encode_schema(report_schema()))
