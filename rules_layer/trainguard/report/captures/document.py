"""Kernel profiles in a report: the part ``kernels`` of ``report.json``."""

import msgspec

from trainguard.kernels.captures.verdict import RuleVerdict


class KernelReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest judged capture of kernel traces shows.

    Attributes
    ----------
    capture : str
        Its name, and the folder of its files below ``kernels/``.
    written_at : str
        When its last trace was written.
    sentence : str
        How busy the GPUs are, what fires, and how much of a step the first findings explain.
    traces, judged, unread : int
        Traces of it; those with a GPU's work in three steps or more; those that could not be read.
    unread_why : dict of str to str
        The first of these and why.
    world_size : int or None
        Ranks of the job, as the traces say it.
    busy_share : float or None
        Share, 0 to 1; None without work of a GPU.
    step_ns : int or None
        Median over ranks of the mean step.
    findings : list of RuleVerdict
        What explains most of the time first, then by severity.
    notes : list of str
        What traces lack and what could not be compared.
    page, document : str or None
        Files beside the report; None where nobody wrote them, as on one's own machine.
    captures : int
        Captures that were judged so far.
    waits : bool
        Whether newer traces are there that were not judged yet.
    """

    capture: str
    written_at: str
    sentence: str
    traces: int
    judged: int
    unread: int
    unread_why: dict[str, str]
    world_size: int | None
    steps: int
    gpus: list[str]
    busy_share: float | None
    step_ns: int | None
    findings: list[RuleVerdict]
    notes: list[str]
    page: str | None
    document: str | None
    captures: int
    waits: bool
