"""What TrainGuard says about the recorded runs, held against their labels."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.analyses import analyzed
from tests.verdicts.recorded_runs.labels import Label, labels
from tests.verdicts.recorded_runs.recordings import unpack
from trainguard.cli.commands.analyze.outcome import document_of
from trainguard.core.errors import TrainGuardError

# Fires when another rule has: it says nothing of its own.
_SUMMARY = "ProfilerReport"


@dataclass(frozen=True, slots=True)
class Judged:
    """A run and what was said: reasons of the rules that fired by their bare names; ``refused`` is why nothing was."""

    run: str
    label: Label
    reasons: Mapping[str, str]
    refused: str = ""

    @property
    def named(self) -> bool:
        """Whether a rule has fired that the label expects."""
        return bool(self.label.rules & self.reasons.keys())

    @property
    def false_alarm(self) -> bool:
        """Whether any rule has fired on a run that is healthy or unclear."""
        return self.label.kind in {"healthy", "unclear"} and bool(self.reasons)

    @property
    def wrong(self) -> bool:
        """Whether the answer is not the label's."""
        return self.false_alarm or bool(self.refused) or (self.label.kind == "broken" and not self.named)


def judge(run: str, folder: Path) -> Judged:
    """Judge a run as ``trainguard analyze FOLDER`` does."""
    try:
        document = document_of(analyzed(str(folder / run)))
    except TrainGuardError as fault:
        return Judged(run, labels()[run], {}, str(fault))
    fired = set(document["fired"])
    reasons = {
        rule["rule"].rpartition("/")[2]: rule["reason"]
        for rule in document["rules"]
        if rule["rule"] in fired and rule["rule"] != _SUMMARY
    }
    return Judged(run, labels()[run], reasons)


@cache
def judged() -> Sequence[Judged]:
    """Judge all recorded runs, once in a process."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(Path(folder))
        return [judge(run, Path(folder)) for run in labels()]


def shares(found: Sequence[Judged]) -> tuple[float, float]:
    """Return the share of broken runs that are named, and of other runs that have a false alarm."""
    broken = [each.named for each in found if each.label.kind == "broken"]
    others = [each.false_alarm for each in found if each.label.kind in {"healthy", "unclear"}]
    return sum(broken) / len(broken), sum(others) / len(others)


def table(found: Sequence[Judged]) -> str:
    """Return both shares, and each run whose answer is not its label's."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Sequence[Judged]) -> Iterator[str]:
    named, alarms = shares(found)
    of_kind = {
        kind: sum(each.label.kind == kind for each in found) for kind in ("broken", "hidden", "healthy", "unclear")
    }
    yield f"{len(found)} recorded runs: " + ", ".join(f"{number} {kind}" for kind, number in of_kind.items())
    yield f"  broken, named: {named:.1%}   healthy or unclear, with a finding: {alarms:.1%}"
    for each in found:
        if each.wrong:
            expected = " or ".join(each.label.findings) or "no finding"
            said = "; ".join(f"{rule}: {reason}" for rule, reason in each.reasons.items()) or each.refused or "nothing"
            yield f"  {each.run} ({each.label.kind}: {each.label.why})\n    expected: {expected}\n    got: {said}"
