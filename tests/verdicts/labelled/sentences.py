"""What a finding's sentences say, held against what was planted: words, and facts that a label knows."""

import re
from collections.abc import Iterator

from tests.verdicts.labelled import goals
from tests.verdicts.labelled.checks import Check
from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.reported import Finding, Reported
from tests.verdicts.labelled.truth import Fault

_TIME = r"([\d.,]+) (s|min|h|days?)\b"
_LASTED = ("idle_time", "standstill_time")
_OF_NOW = rf"\bnow\b|\bago\b|\bwithin {_TIME}|\bstop it if\b"
_LASTED_WITHIN = 0.1
_FULL_WITHIN = 1.5
_FULL_WITHIN_S = 900.0
_GROWTH_WITHIN = 0.25


def sentence_checks(job: Job, fault: Fault, finding: Finding, report: Reported) -> Iterator[Check]:
    """Check the words about a job with this one fault, and the facts that its label knows."""
    yield from _words(fault, finding, report)
    within_s = goals.START_WITHIN_S + goals.START_WITHIN_INTERVALS * job.interval_s
    end_min = job.minutes if fault.end_min is None else fault.end_min
    lasted_s = 60.0 * (end_min - fault.onset_min)
    for said_s in finding.numbers(*_LASTED):
        holds = abs(said_s - lasted_s) <= within_s + _LASTED_WITHIN * lasted_s
        yield Check("lasted", _shown(lasted_s), _shown(said_s), holds)
    if fault.kind == "leak" and fault.fails_in_h is not None:
        yield from _leak(job, 3_600.0 * fault.fails_in_h, finding)


def ended_checks(report: Reported) -> Iterator[Check]:
    """Check that an ended job's report is about what was: no sentence is of now, and no advice comes too late."""
    said = [report.health, report.change, report.cost]
    said += [text for finding in report.findings for text in (finding.reason, finding.advice)]
    yield _silent("ended", _OF_NOW, " ".join(said))


def finding_checks(fault: Fault, finding: Finding) -> Iterator[Check]:
    """Check what a finding says of one of several faults: the advice, and what did not happen."""
    label = fault.label
    advised = re.search(label.remedy, finding.advice, re.IGNORECASE) is not None
    yield Check("advice", label.remedy, finding.advice, advised)
    yield _silent("misadvice", label.misadvice, finding.advice)


def _words(fault: Fault, finding: Finding, report: Reported) -> Iterator[Check]:
    label = fault.label
    advised = re.search(label.remedy, finding.advice, re.IGNORECASE) is not None
    yield Check("advice", label.remedy, finding.advice, advised)
    yield _silent("misadvice", label.misadvice, f"{finding.advice} {report.change}")
    yield _silent("claim", label.untrue, f"{finding.reason} {report.health}")


def _silent(what: str, pattern: str, text: str) -> Check:
    found = re.search(pattern, text, re.IGNORECASE)
    return Check(what, "not said", found.group() if found else "not said", found is None)


def _leak(job: Job, left_s: float, finding: Finding) -> Iterator[Check]:
    """Check how fast a memory that grows is said to grow, and when it is said to be full."""
    growth = job.growth[0]
    an_hour = 60.0 * growth.points / (growth.end_min - growth.start_min)
    for said in finding.numbers("hourly_increase"):
        holds = abs(said - an_hour) <= _GROWTH_WITHIN * an_hour
        yield Check("growth", f"{an_hour:.1f} points an hour", f"{said:.1f}", holds)
    for said_s in finding.numbers("time_left"):
        near = abs(said_s - left_s) <= _FULL_WITHIN_S
        holds = near or left_s / _FULL_WITHIN <= said_s <= left_s * _FULL_WITHIN
        yield Check("full in", _shown(left_s), _shown(said_s), holds)


def _shown(seconds: float) -> str:
    return f"{seconds / 60.0:.1f} min"
