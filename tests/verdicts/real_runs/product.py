"""What TrainGuard says about a recorded run: ``trainguard analyze --json`` with its own defaults, in this process."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.analyses import analyzed
from tests.verdicts.real_runs.profile_writer import write_profile
from tests.verdicts.real_runs.recording import read_recording
from trainguard.cli.commands.analyze.outcome import document_of

# Fires when another rule has: it says nothing of its own.
_SUMMARY = "ProfilerReport"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that has fired; ``wasted_percent`` None where it does not say what was wasted."""

    rule: str
    text: str
    wasted_percent: float | None


@dataclass(frozen=True, slots=True)
class Said:
    """What was said about a run: the findings, the most severe first, and the verdict on the whole job.

    ``short_of_data`` names the rules that had too little data, ``unread`` counts what was not used of the profile.
    """

    findings: tuple[Finding, ...]
    level: str
    verdict: tuple[str, ...]
    short_of_data: tuple[str, ...]
    unread: Mapping[str, int]

    @property
    def fired(self) -> tuple[str, ...]:
        """Names of the rules that have fired."""
        return tuple(finding.rule for finding in self.findings)

    @property
    def texts(self) -> tuple[str, ...]:
        """All that findings and verdict say."""
        return (*(finding.text for finding in self.findings), *self.verdict)


@cache
def say(run: str) -> Said:
    """Judge the run ``run``; once in a process."""
    with tempfile.TemporaryDirectory() as folder:
        job = write_profile(read_recording(run), Path(folder))
        return finding_on(document_of(analyzed(str(job / "profiler-output"))))


def finding_on(document: Mapping[str, Any]) -> Said:
    """Return what the document of an analysis says."""
    rules = document["rules"]
    fired = [rule for rule in rules if rule["rule"] in document["fired"] and rule["rule"] != _SUMMARY]
    verdict = document["verdict"]
    return Said(
        findings=tuple(_finding(rule) for rule in fired),
        level=verdict.level,
        verdict=(verdict.health, verdict.change),
        short_of_data=tuple(rule["rule"] for rule in rules if rule["status"] in {"WARMING_UP", "WAITING_FOR_DATA"}),
        unread=document["unread"],
    )


def _finding(rule: Mapping[str, Any]) -> Finding:
    share = rule["wasted_share"]
    text = " ".join(part for part in (rule["reason"], rule["advice"]) if part)
    return Finding(rule["rule"], text, None if share is None else 100.0 * share)
