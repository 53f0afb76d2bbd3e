"""The document of ``trainguard kernels --list``."""

from typing import Literal

import msgspec

from trainguard.finding import Severity

SCHEMA_VERSION: Literal["1"] = "1"
Status = Literal["judged", "judged in part", "not judged", "unreadable"]


class ListedProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A ``kernels.json``, or a folder of traces that none of those names.

    Attributes
    ----------
    name : str
        The folder that the traces are in; the file's name of a single trace.
    place : str
        The folder of ``kernels.json`` or of the traces, below the place that is listed; ``.`` for the place itself.
    status : str
        ``judged in part`` where traces are cut off or could not be read, or ranks have none; ``unreadable`` of
        a broken document.
    why : str
        What is missing, or why it is unreadable; empty where all is judged.
    framework : str
        As in ``kernels.json``; several are separated by commas.
    recorded_at : str or None
        When the first window starts, ISO 8601; None where the traces have no time.
    changed_at : str or None
        When the newest of its files was written.
    traces, ranks : int
        Files that were judged, or wait for it; ranks that are known of them.
    gpus : list of str
        Their models, each once.
    busy_share : float or None
        Of all windows together.
    severity : str or None
        The highest of the findings.
    findings : list of str
        Rules that fire, those with the most to win first.
    gain_share : float or None
        The most that one finding can win of the time.
    document, page : str or None
        ``kernels.json`` and ``kernels.html``, below the place.
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

    Attributes
    ----------
    found : int
        Profiles before they were chosen by name, time, status, framework and finding.
    left_out : int
        Chosen profiles that ``profiles`` does not hold.
    """

    schema_version: Literal["1"] = SCHEMA_VERSION
    source: str
    found: int
    profiles: list[ListedProfile]
    left_out: int = 0
