"""The kernel profiles of a place, of ``kernels.json`` of any version, and the choice of a part of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from trainguard.core.finding import Severity
from trainguard.core.text import one_line
from trainguard.core.timestamps import epoch_of, iso_time
from trainguard.core.units import counted
from trainguard.kernels.columns import is_cut
from trainguard.kernels.ranking import place_of
from trainguard.kernels.rules.finding import FAMILY
from trainguard.kernels.rules.trace_quality import TraceQuality
from trainguard.kernels.words import are, have

SCHEMA_VERSION: Literal["1"] = "1"
Status = Literal["judged", "judged in part", "not judged", "unreadable"]


class ListedProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A ``kernels.json``, or a folder of traces that none of those names.

    name: The folder that the traces are in; the file's name of a single trace.
    place, document, page: Paths below the listed place, which is ``.``.
    status, why: ``judged in part`` where traces are cut off or unread, or ranks have none; ``why`` is empty where all
        is judged.
    framework: As in ``kernels.json``; several are separated by commas.
    recorded_at, changed_at: When the first window starts, ISO 8601, None without times; when the newest file was
        written.
    findings, gain_share: Rules that fire, in the order of `trainguard.kernels.ranking`, and the largest share of the
        time that one can win.
    """

    name: str
    place: str
    status: Status
    why: str = ""
    framework: str = "unknown"
    recorded_at: str | None = None
    changed_at: str | None = None
    traces: int = 0
    ranks: int = 0
    gpus: list[str] = []
    busy_share: float | None = None
    severity: Severity | None = None
    findings: list[str] = []
    gain_share: float | None = None
    document: str | None = None
    page: str | None = None


class KernelList(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel profiles of a place, the newest first.

    ``found`` counts all of them, ``left_out`` the chosen ones that ``profiles`` does not hold.
    """

    schema_version: Literal["1"] = SCHEMA_VERSION
    source: str
    found: int
    profiles: list[ListedProfile]
    left_out: int = 0


LONGEST = 200
_MOST_NAMED = 20
_LATEST_NS = 1 << 62


class _Finding(msgspec.Struct):
    id: str
    severity: str = ""
    confidence: str = "normal"
    gain: dict[str, float] = {}

    @property
    def share(self) -> float:
        return self.gain.get("share", 0.0)


class _Quality(msgspec.Struct):
    counts: dict[str, int] = {}
    is_whole: bool = True


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


class _Across(msgspec.Struct):
    missing_count: int = 0
    findings: list[_Finding] = []
    lines: list[_Rank] = []


class Listed(msgspec.Struct):
    source: str
    ranks: list[_Rank]
    unread: dict[str, Any] = {}
    across: _Across | None = None
    snapshots: list[_Rank] = []


def read_document(text: bytes) -> Listed:
    """Return what a list needs; raises msgspec.MsgspecError or UnicodeError for what is no ``kernels.json``."""
    return msgspec.json.decode(text, type=Listed)


def traces_of(found: Listed) -> set[str]:
    joined = [] if found.across is None else found.across.lines
    return (
        {each.trace for each in (*found.ranks, *found.snapshots)} | {each.trace for each in joined} | set(found.unread)
    )


def listed(found: Listed, *, place: str, document: str, page: str | None, changed_s: float) -> ListedProfile:
    """Return a document's line; places are below the listed one, ``changed_s`` is in epoch seconds."""
    status, why = _status(found)
    findings = _findings(found)
    severities = [each for each in Severity if each.value in {one.severity for one in findings}]
    starts = [at for rank in found.ranks if 0 < (at := rank.start_unix_ns or 0) < _LATEST_NS]
    window = sum(rank.window_ns for rank in found.ranks)
    joined = 0 if found.across is None else len(found.across.lines)
    count = max(len(found.ranks), joined) + len(found.snapshots)
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
        severity=max(severities, key=lambda each: each.rank, default=None),
        findings=_rules(findings),
        gain_share=max((round(each.share, 4) for each in findings), default=None),
        document=_shown(document),
        page=None if page is None else _shown(page),
    )


def _status(found: Listed) -> tuple[Status, str]:
    missing = 0 if found.across is None else found.across.missing_count
    lines_shown = []
    if found.unread:
        lines_shown.append(f"{counted(len(found.unread), 'file')} could not be read")
    if missing > 0:
        lines_shown.append(f"{have(missing, 'rank')} no trace")
    cut = sum(is_cut(rank.quality.counts) for rank in found.ranks)
    if cut:
        lines_shown.append(f"{are(cut, 'trace')} cut off")
    lost = sum(not rank.quality.is_whole and not is_cut(rank.quality.counts) for rank in found.ranks)
    if lost:
        lines_shown.append(f"{counted(lost, 'trace')} without all of the GPU's work")
    if not any(rank.busy_ns for rank in found.ranks) and not found.snapshots:
        lines_shown.append("no trace has work of a GPU")
    return ("judged in part" if lines_shown else "judged"), ", ".join(lines_shown)


def _findings(found: Listed) -> list[_Finding]:
    across = [] if found.across is None else found.across.findings
    return [
        *(each for rank in (*found.ranks, *found.snapshots) for each in rank.findings if each.id != TraceQuality.name),
        *across,
    ]


def _rules(findings: Sequence[_Finding]) -> list[str]:
    return list(dict.fromkeys(_shown(each.id.removeprefix(FAMILY)) for each in sorted(findings, key=_place)))[
        :_MOST_NAMED
    ]


def _place(finding: _Finding) -> tuple[Any, ...]:
    severity = next((each for each in Severity if each.value == finding.severity), None)
    sure = finding.confidence == "normal"
    return place_of(finding.id, sure=sure, gain_share=finding.share, severity=severity)


def _shown(text: str) -> str:
    return one_line(text, LONGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingRequest:
    """Wanted profiles; None or empty excludes none, texts are compared without case.

    ``name`` is a part of a name or place, ``since`` is epoch seconds, ``finding`` a rule with or without ``kernels/``.
    """

    name: str = ""
    since: float | None = None
    status: str = ""
    framework: str = ""
    finding: str = ""

    def has(self, profile: ListedProfile) -> bool:
        rule = self.finding.lower().rpartition("/")[2]
        return (
            self.name.lower() in f"{profile.place}/{profile.name}".lower()
            and (self.since is None or _time(profile) >= self.since)
            and self.status.lower() in ("", profile.status)
            and (not self.framework or self.framework.lower() in profile.framework.split(", "))
            and (not rule or rule in (each.lower() for each in profile.findings))
        )


def newest_first(profiles: Iterable[ListedProfile]) -> list[ListedProfile]:
    return sorted(profiles, key=lambda each: (-_time(each), each.place, each.name))


def _time(profile: ListedProfile) -> float:
    at = profile.recorded_at or profile.changed_at
    return 0.0 if at is None else epoch_of(at)
