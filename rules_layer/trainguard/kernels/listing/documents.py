"""A ``kernels.json`` of any version, read as far as a list needs it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from trainguard.finding import Severity
from trainguard.kernels.columns import is_cut
from trainguard.kernels.findings.finding import FAMILY
from trainguard.kernels.findings.trace_quality import TRACE_QUALITY
from trainguard.kernels.listing.entries import ListedProfile, Status
from trainguard.kernels.words import are, counted, have
from trainguard.plain_text import one_line
from trainguard.timestamps import iso_time

LONGEST = 200
_MOST_NAMED = 20
_LATEST_NS = 1 << 62


class _Gain(msgspec.Struct):
    share: float = 0.0


class _Finding(msgspec.Struct):
    id: str
    severity: str = ""
    gain: _Gain = msgspec.field(default_factory=_Gain)


class _Quality(msgspec.Struct):
    counts: dict[str, int] = {}


class _Rank(msgspec.Struct):
    trace: str
    rank: int | None = None
    gpus: list[str] = []
    start_unix_ns: int | None = None
    window_ns: int = 0
    busy_ns: int = 0
    framework: str = "unknown"
    findings: list[_Finding] = []
    quality: _Quality = msgspec.field(default_factory=_Quality)


class _Line(msgspec.Struct):
    trace: str = ""


class _Across(msgspec.Struct):
    missing_count: int = 0
    findings: list[_Finding] = []
    lines: list[_Line] = []


class Listed(msgspec.Struct):
    """What a list takes of a document."""

    source: str
    ranks: list[_Rank]
    unread: dict[str, Any] = {}
    across: _Across | None = None


def read_document(text: bytes) -> Listed:
    """Return what a list needs; raises msgspec.MsgspecError or UnicodeError for what is no ``kernels.json``."""
    return msgspec.json.decode(text, type=Listed)


def traces_of(found: Listed) -> set[str]:
    """Return the names of the traces that a document judges or could not read."""
    joined = [] if found.across is None else found.across.lines
    return {each.trace for each in found.ranks} | {each.trace for each in joined} | set(found.unread)


def listed(found: Listed, *, place: str, document: str, page: str | None, changed_s: float) -> ListedProfile:
    """Return a document's line.

    Parameters
    ----------
    found : Listed
    place, document, page : str
        Where the document lies, below the place that is listed.
    changed_s : float
        When it was written, in epoch seconds.
    """
    status, why = _status(found)
    findings = _findings(found)
    starts = [at for rank in found.ranks if 0 < (at := rank.start_unix_ns or 0) < _LATEST_NS]
    window = sum(rank.window_ns for rank in found.ranks)
    joined = 0 if found.across is None else len(found.across.lines)
    count = max(len(found.ranks), joined)
    return ListedProfile(
        name=_shown(found.source.rstrip("/").rpartition("/")[2] or found.source),
        place=_shown(place),
        status=status,
        why=why,
        framework=", ".join(sorted({_shown(rank.framework) for rank in found.ranks})[:_MOST_NAMED]) or "unknown",
        recorded_at=iso_time(min(starts) / 1e9) if starts else None,
        changed_at=iso_time(changed_s),
        traces=count,
        ranks=max(len({rank.rank for rank in found.ranks if rank.rank is not None}), joined),
        gpus=sorted({_shown(gpu) for rank in found.ranks for gpu in rank.gpus if gpu})[:_MOST_NAMED],
        busy_share=round(sum(rank.busy_ns for rank in found.ranks) / window, 4) if window > 0 else None,
        severity=max(_severities(findings), key=lambda each: each.rank, default=None),
        findings=_rules(findings),
        gain_share=max((round(each.gain.share, 4) for each in findings), default=None),
        document=_shown(document),
        page=None if page is None else _shown(page),
    )


def _status(found: Listed) -> tuple[Status, str]:
    missing = 0 if found.across is None else found.across.missing_count
    said = []
    if found.unread:
        said.append(f"{counted(len(found.unread), 'file')} could not be read")
    if missing > 0:
        said.append(f"{have(missing, 'rank')} no trace")
    cut = sum(is_cut(rank.quality.counts) for rank in found.ranks)
    if cut:
        said.append(f"{are(cut, 'trace')} cut off")
    if not any(rank.busy_ns for rank in found.ranks):
        said.append("no trace has work of a GPU")
    return ("judged in part" if said else "judged"), ", ".join(said)


def _findings(found: Listed) -> list[_Finding]:
    """Return what fires on a rank or across them, without the quality of the trace."""
    across = [] if found.across is None else found.across.findings
    return [*(each for rank in found.ranks for each in rank.findings if each.id != TRACE_QUALITY), *across]


def _rules(findings: Sequence[_Finding]) -> list[str]:
    gains: dict[str, float] = {}
    for each in findings:
        rule = _shown(each.id.removeprefix(FAMILY))
        gains[rule] = max(gains.get(rule, 0.0), each.gain.share)
    return sorted(gains, key=lambda rule: (-gains[rule], rule))[:_MOST_NAMED]


def _severities(findings: Sequence[_Finding]) -> list[Severity]:
    words = {each.value for each in Severity}
    return [Severity(each.severity) for each in findings if each.severity in words]


def _shown(text: str) -> str:
    return one_line(text, LONGEST)
