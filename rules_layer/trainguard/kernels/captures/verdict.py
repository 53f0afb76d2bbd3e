"""What the rules say of a capture, over all its ranks: small enough for a job's item and its report."""

import msgspec
from msgspec.structs import replace

from trainguard.errors import TelemetryFormatError
from trainguard.finding import Fact, Severity
from trainguard.kernels.captures.step_shares import StepShares

FORMAT = 2
MOST_BYTES = 64 * 1024
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a finding rests on: a kernel, a call or a stretch, and how long it took in how many runs."""

    what: str
    duration_ns: int
    count: int = 1
    step: int | None = None


class RuleVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that fires on a capture: the numbers are those of the rank where the most can be won.

    Attributes
    ----------
    severity : Severity
        The severest of the ranks on which it fires with normal confidence; of all where there is none.
    kind : str
        Of `trainguard.kernels.findings.text.KernelKind`.
    facts : list of Fact
        What the finding of that rank rests on.
    sure, unsure : int
        On how many ranks it fires with normal, and with low confidence.
    ranks : list of str
        The first ones that have it.
    gain_ns_per_step, gain_share : int, float
        The most that can be won of a step of what no other rule explains; its share.
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


class CaptureVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one capture.

    Attributes
    ----------
    format : int
        Of this document.
    capture, version, run : str
        The capture's name, its version, and the execution that judged it.
    at : float
        When its last trace was written, epoch seconds.
    traces, judged, unread, cut : int
        Traces of it; those that are whole, with work of a GPU in three steps or more; those that could not be read;
        those whose file ends early.
    unread_why : dict of str to str
        The first of these and why.
    world_size : int or None
        Ranks of the job, as the traces say it.
    steps : int
        Most steps of a rank.
    busy_share : float or None
        The GPUs' busy share over all windows; None without work of a GPU.
    step_ns : int or None
        Median over ranks of the mean step.
    rules : list of RuleVerdict
        What explains most of the time first, then by severity; those of low confidence last.
    notes : list of str
        What is missing or could not be compared, in sentences or clauses.
    framework : str
        As in ``kernels.json``; several are separated by commas. Empty in verdicts of earlier versions.
    shares : StepShares or None
        What the time of steps goes into, over the ranks that are judged; None where none is.
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
    framework: str = ""
    shares: StepShares | None = None

    def of(self, rule: str) -> RuleVerdict | None:
        """Return what is said of a rule; None where it does not fire."""
        return next((each for each in self.rules if each.rule == rule), None)


def encode_verdict(verdict: CaptureVerdict) -> bytes:
    """Encode a verdict; what makes it larger than a reader takes is dropped: evidence, then the last rules."""
    while True:
        body = msgspec.json.encode(verdict)
        if len(body) <= MOST_BYTES or not verdict.rules:
            return body
        verdict = shorter(verdict)


def shorter(verdict: CaptureVerdict) -> CaptureVerdict:
    """Return a verdict without evidence; one that has none with half of its rules."""
    if any(rule.evidence for rule in verdict.rules):
        return replace(verdict, rules=[replace(rule, evidence=[]) for rule in verdict.rules])
    return replace(verdict, rules=verdict.rules[: len(verdict.rules) // 2], notes=[], unread_why={})


def decode_verdict(key: str, body: bytes) -> CaptureVerdict:
    """Read a verdict back; raises TelemetryFormatError when it is none, or of another version of this code."""
    if len(body) > MOST_BYTES:
        raise TelemetryFormatError(key, f"a verdict of over {MOST_BYTES:,} bytes, expected fewer")
    try:
        verdict = msgspec.json.decode(body, type=CaptureVerdict)
    except _UNREADABLE as fault:
        raise TelemetryFormatError(key, f"{fault}, expected a verdict on a capture") from fault
    if verdict.format != FORMAT:
        raise TelemetryFormatError(key, f"format {verdict.format}, expected {FORMAT}")
    return verdict
