"""What a finding's sentences say, held against what was planted: words, and the numbers that they give."""

import re
from collections.abc import Iterator

from tests.verdicts.labelled import goals
from tests.verdicts.labelled.checks import Check
from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.reported import Finding, Reported
from tests.verdicts.labelled.truth import Fault

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3_600.0, "days": 86_400.0, "day": 86_400.0}
_TIME = r"([\d.,]+) (s|min|h|days?)\b"
_BUSY = re.compile(r"([\d.]+) % busy on average")
_LASTED = (re.compile(rf"idle for {_TIME}"), re.compile(rf"used in the {_TIME}"), re.compile(rf"{_TIME} were paid for"))
_OF_NOW = rf"\bnow\b|\bago\b|\bwithin {_TIME}|\bstop it if\b"
_AMOUNT = re.compile(r"USD ([\d,]+\.\d\d)")
_FULL_IN = re.compile(rf"100 % in (?:about )?{_TIME}")
_GROWTH = re.compile(r"([\d.]+) percentage points an hour")

_BUSY_WITHIN = 3.0
_LASTED_WITHIN = 0.1
_FULL_WITHIN = 1.5
_FULL_WITHIN_S = 900.0
_GROWTH_WITHIN = 0.25


def sentence_checks(job: Job, fault: Fault, finding: Finding, report: Reported, *, busy: float) -> Iterator[Check]:
    """Check the sentences about a job with this one fault; ``busy`` is its GPUs' true mean utilization, percent."""
    yield from _words(fault, finding, report)
    text = f"{finding.reason} {finding.advice}"
    for said in _BUSY.findall(report.health):
        yield Check("busy", f"{busy:.1f} %", f"{said} %", abs(float(said) - busy) <= _BUSY_WITHIN)
    within_s = goals.START_WITHIN_S + goals.START_WITHIN_INTERVALS * job.interval_s
    end_min = job.minutes if fault.end_min is None else fault.end_min
    lasted_s = 60.0 * (end_min - fault.onset_min)
    for pattern in _LASTED:
        for said_s in _times(pattern, text):
            holds = abs(said_s - lasted_s) <= within_s + _LASTED_WITHIN * lasted_s
            yield Check("lasted", _shown(lasted_s), _shown(said_s), holds)
    if fault.kind == "leak" and fault.fails_in_h is not None:
        yield from _leak(job, 3_600.0 * fault.fails_in_h, text)


def ended_checks(report: Reported) -> Iterator[Check]:
    """Check that an ended job's report is about what was: no sentence is of now, and no advice comes too late."""
    said = [report.health, report.change, report.cost]
    said += [text for finding in report.findings for text in (finding.reason, finding.advice)]
    yield _silent("ended", _OF_NOW, " ".join(said))
    amounts = _AMOUNT.findall(report.health.partition("; ")[0])
    if report.cost.startswith("It cost ") and len(amounts) == 1:
        yield Check("one cost", f"USD {amounts[0]}", report.cost, f"USD {amounts[0]} " in report.cost)


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


def _leak(job: Job, left_s: float, text: str) -> Iterator[Check]:
    """Check how fast a memory that grows is said to grow, and when it is said to be full."""
    growth = job.growth[0]
    an_hour = 60.0 * growth.points / (growth.end_min - growth.start_min)
    for said in _GROWTH.findall(text):
        holds = abs(float(said) - an_hour) <= _GROWTH_WITHIN * an_hour
        yield Check("growth", f"{an_hour:.1f} points an hour", said, holds)
    for said_s in _times(_FULL_IN, text):
        near = abs(said_s - left_s) <= _FULL_WITHIN_S
        holds = near or left_s / _FULL_WITHIN <= said_s <= left_s * _FULL_WITHIN
        yield Check("full in", _shown(left_s), _shown(said_s), holds)


def _times(pattern: re.Pattern[str], text: str) -> Iterator[float]:
    for amount, unit in pattern.findall(text):
        yield float(amount.replace(",", "")) * _SECONDS[unit]


def _shown(seconds: float) -> str:
    return f"{seconds / 60.0:.1f} min"
