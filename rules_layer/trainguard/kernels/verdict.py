"""The rules' verdict on a capture, over all its ranks: small enough for a job's item and its report."""

from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from trainguard.core.errors import TelemetryFormatError
from trainguard.core.finding import Fact, Severity

FORMAT = 2
MOST_BYTES = 64 * 1024
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError)


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a finding rests on: a kernel, a call or a stretch, and how long it took in how many runs."""

    what: str
    duration_ns: int
    count: int = 1
    step: int | None = None


class RuleVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that fires on a capture: the numbers are those of the rank where the most can be won.

    severity: The severest of the ranks on which it fires with normal confidence; of all where there is none.
    kind: Of `trainguard.kernels.rules.rule.Saying`.
    facts: What the finding of that rank rests on.
    sure, unsure: On how many ranks it fires with normal, and with low confidence.
    ranks: The first ones that have it.
    gain_ns_per_step, gain_share: The most that can be won of a step of what no other rule explains; its share.
    """

    rule: str
    severity: Severity
    kind: str
    facts: list[Fact]
    value: float
    threshold: float
    gain_ns_per_step: int
    gain_share: float
    sure: int
    unsure: int
    ranks: list[str]
    evidence: list[Proof]


class CaptureStepShares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the time of steps, 0 to 1; together they are at most 1.

    ``ranks`` count by the length of their windows, ``rank`` is None of several, ``steps`` are the most of a rank.
    ``start_s`` and ``end_s`` are epoch seconds, None without times. ``communication`` is the transfer, and the waiting
    where that is unknown; ``peers`` waits for slower ranks. In ``loader``, ``host`` and ``other`` the GPU is idle: the
    host waits for data, or has not launched the next work, or neither.
    """

    ranks: int
    steps: int
    rank: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    compute: float
    copies: float
    communication: float
    peers: float
    peers_known: bool
    loader: float
    host: float
    other: float


class CaptureHead(msgspec.Struct, frozen=True, kw_only=True):
    """A capture's facts before its traces are read.

    run, at: The execution that judges it, and when its last trace was written, epoch seconds.
    """

    capture: str
    version: str
    run: str
    folder: str
    at: float
    traces: int
    notes: list[str] = []


class SnapshotsHead(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a job's newest snapshots before they are read; see `SnapshotVerdict`."""

    version: str
    at: float
    replaced: int
    notes: list[str] = []


class SnapshotVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the newest memory snapshots of a job, one of each writer.

    version, at: Of these files; when the newest one was written, epoch seconds.
    files, unread: Snapshots; those that could not be read. ``unread_why`` has the first ones and why.
    replaced: Older snapshots that a newer one of the same writer replaces.
    judged: By rule how many snapshots say whether it holds.
    """

    version: str
    at: float
    files: int
    unread: int
    unread_why: dict[str, str]
    replaced: int
    judged: dict[str, int]
    rules: list[RuleVerdict]
    notes: list[str] = []

    def of(self, rule: str) -> RuleVerdict | None:
        return next((each for each in self.rules if each.rule == rule), None)


class CaptureVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one capture.

    run, at: The execution that judged it, and when its last trace was written, epoch seconds.
    judged, unread, cut, lost: Traces that are whole, with work of a GPU in three steps or more; that could not be read;
        whose file ends early; that lost work of the GPU.
    unread_why: The first unread traces and why.
    steps, step_ns: Most steps of a rank; median over ranks of the mean step.
    busy_share: The GPUs' busy share over all windows; None without work of a GPU.
    rules: In the order of `trainguard.kernels.ranking`.
    framework: As in ``kernels.json``; several are separated by commas.
    shares: Of the steps of judged ranks; None without any.
    memory: Traces with events of a GPU's memory.
    snapshots: Of the newest capture; None where the job has none.
    """

    format: int = FORMAT
    capture: str
    version: str
    run: str
    folder: str
    at: float
    traces: int
    judged: int
    unread: int
    unread_why: dict[str, str]
    world_size: int | None
    steps: int
    gpus: list[str]
    busy_share: float | None
    step_ns: int | None
    rules: list[RuleVerdict]
    notes: list[str]
    cut: int = 0
    lost: int = 0
    framework: str = ""
    shares: CaptureStepShares | None = None
    memory: int = 0
    snapshots: SnapshotVerdict | None = None

    def of(self, rule: str) -> RuleVerdict | None:
        return next((each for each in self.rules if each.rule == rule), None)

    @property
    def has_traces(self) -> bool:
        """False of snapshots alone."""
        return bool(self.traces) or self.snapshots is None

    @property
    def has_findings(self) -> bool:
        return bool(self.rules) or (self.snapshots is not None and bool(self.snapshots.rules))


_DECODER = msgspec.json.Decoder(CaptureVerdict)


def encode_verdict(verdict: CaptureVerdict) -> bytes:
    """Encode a verdict; what makes it larger than a reader takes is dropped: evidence, then the last rules."""
    while True:
        body = msgspec.json.encode(verdict)
        if len(body) <= MOST_BYTES or not verdict.has_findings:
            return body
        verdict = shorter(verdict)


def shorter(verdict: CaptureVerdict) -> CaptureVerdict:
    """Return a verdict without evidence; one that has none with half of its rules."""
    of_snapshots = verdict.snapshots
    rules = [*verdict.rules, *([] if of_snapshots is None else of_snapshots.rules)]
    shortened = _bare if any(rule.evidence for rule in rules) else _halved
    return replace(shortened(verdict), snapshots=None if of_snapshots is None else shortened(of_snapshots))


_Verdict = TypeVar("_Verdict", CaptureVerdict, SnapshotVerdict)


def _bare(verdict: _Verdict) -> _Verdict:
    return replace(verdict, rules=[replace(rule, evidence=[]) for rule in verdict.rules])


def _halved(verdict: _Verdict) -> _Verdict:
    return replace(verdict, rules=verdict.rules[: len(verdict.rules) // 2], notes=[], unread_why={})


def decode_verdict(key: str, body: bytes) -> CaptureVerdict:
    """Read a verdict back; raises TelemetryFormatError when it is none, or of another version of this code."""
    return decoded(key, body, _DECODER, MOST_BYTES, FORMAT, "a verdict on a capture")


Document = TypeVar("Document")


def decoded(
    key: str, body: bytes, decoder: "msgspec.json.Decoder[Document]", most: int, version: int, what: str
) -> Document:
    """Read a document of the stack; raises TelemetryFormatError over ``most`` bytes, or of another version."""
    if len(body) > most:
        raise TelemetryFormatError(key, f"over {most:,} bytes, expected fewer of {what}")
    try:
        found: Any = decoder.decode(body)
    except _DECODE_ERRORS as fault:
        raise TelemetryFormatError(key, f"{fault}, expected {what}") from fault
    if found.format != version:
        raise TelemetryFormatError(key, f"format {found.format}, expected {version}")
    return cast("Document", found)
