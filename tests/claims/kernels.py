"""Holds findings on kernel traces against the events of all ranks: facts, gains, evidence, sentences, conditions."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.claims.claim import UNCHECKED, Untrue
from tests.claims.kernel_evidence import MOST_FACTS, evidence_fault
from tests.claims.kernel_facts import CONDITIONS, DEVICES, FACTS, OF_MEMORY, OF_RULE, THRESHOLDS
from tests.claims.kernel_files import read_recordings
from tests.claims.kernel_gains import FEW_STEPS, Rank
from tests.claims.kernel_ranks import TIMES, Found, Ranks
from tests.claims.sentences import Sayable, text_claims

FAMILY = "kernels/"
ACROSS = ("LateRank", "SlowRank")
THRESHOLDS_ACROSS = {"lateness_share": 0.05, "compute_ratio": 1.1, "exchange_ratio": 1.1}
SHARE_WITHIN, TIME_WITHIN, NS_WITHIN = 5.1e-5, 5.1e-4, 2.0
# So many ranks are named.
NAMED = 2

Claims = Iterator[Untrue | None]
Finding = dict[str, Any]


class Capture:
    """The ranks of a job's capture, and of each rule where it fires, and what it can win there."""

    def __init__(self, folder: Path) -> None:
        self.ranks = [Rank(recording) for recording in read_recordings(folder)]
        self.beside = Ranks(self.ranks)
        self.across: dict[str, list[Found]] = {}
        if len(self.ranks) > 1:
            late = self.beside.late
            self.across = {"LateRank": [] if late is None else [late[1]], "SlowRank": self.beside.slow}

    @property
    def has_memory(self) -> bool:
        """Whether a trace has events of an allocator."""
        return any(rank.recording.memory for rank in self.ranks)

    def gain(self, rank: Rank, rule: str) -> tuple[float, float]:
        """Return what a rule can win on a rank: nanoseconds of a step, and the share."""
        trace = rank.trace
        won = rank.gains[rule]
        per_step, share = won / len(trace.steps), won / trace.window
        late = self.across.get("LateRank", [])
        if rule == "ExposedCommunication" and late and late[0].sure:
            # The wait for the late rank is that rank's; each of both is rounded by itself.
            left = round(share, 4) - round(late[0].gain_share, 4)
            return max(round(per_step) - round(late[0].gain_ns), 0.0), max(left, 0.0)
        return per_step, share

    def sure(self, rule: str) -> bool | None:
        """Tell whether a rule is sure of what it finds on some rank; None where it finds nothing."""
        if rule in ACROSS:
            held = [each.sure for each in self.across.get(rule, [])]
        else:
            held = [rank.firing[rule] for rank in self.ranks if rule in rank.firing]
        return any(held) if held else None

    def worst(self, rule: str) -> list[Rank]:
        """Return the ranks on which a rule can win most."""
        mine = self.sure_ranks(rule)
        most = max(self.gain(rank, rule)[1] for rank in mine)
        return [rank for rank in mine if self.gain(rank, rule)[1] >= most - 2.0 * SHARE_WITHIN]

    def sure_ranks(self, rule: str) -> list[Rank]:
        """Return the ranks on which a rule is sure of what it finds."""
        return [rank for rank in self.ranks if rank.firing.get(rule)]


def kernel_claims(folder: Path, report: dict[str, Any]) -> Claims:
    """Yield, for each fact and sentence of the findings on a job's traces, what is untrue, or None."""
    capture = Capture(folder)
    found = {each["rule"].removeprefix(FAMILY): each for each in report["findings"] if each["rule"].startswith(FAMILY)}
    for rule in (*CONDITIONS, *ACROSS):
        yield _fires_claim(capture, rule, found.get(rule))
        yield _status_claim(capture, rule, report)
    for rule in found.keys() - {*CONDITIONS, *ACROSS}:
        yield Untrue(f"{FAMILY}{rule}", "a finding", UNCHECKED)
    if len(capture.ranks) == 1:
        shares = [fact["value"] for each in found.values() for fact in each["facts"] if fact["name"] == "gain_share"]
        yield None if sum(shares) <= 1.0 + 1e-3 else Untrue(FAMILY, f"gains of {sum(shares)}", "a moment counts once")
    for rule, finding in found.items():
        if capture.sure(rule):
            yield from _finding_claims(capture, rule, finding)
            yield from _sentence_claims(rule, finding)
            yield _time_claim(folder, rule, finding)
            yield _words_claim(rule, finding)


def _fires_claim(capture: Capture, rule: str, finding: Finding | None) -> Untrue | None:
    """Hold that a rule has a finding where its condition holds on a rank, whatever its first and last step are."""
    holds = capture.sure(rule)
    if finding is not None and not holds:
        return Untrue(f"{FAMILY}{rule}", "a finding", "its condition does not hold on any rank, without its ends")
    return Untrue(f"{FAMILY}{rule}", "no finding", "its condition holds") if finding is None and holds else None


def _status_claim(capture: Capture, rule: str, report: dict[str, Any]) -> Untrue | None:
    """Hold that a rule that has no finding says whether it is unsure of one, where ranks have steps enough."""
    status = next(entry["status"] for entry in report["rules"] if entry["rule"] == f"{FAMILY}{rule}")
    if not any(len(rank.trace.steps) >= FEW_STEPS for rank in capture.ranks):
        return None
    expected = {None: "OK", False: "WARMING_UP", True: "FIRED"}[capture.sure(rule)]
    if (
        expected == "OK"
        and rule in OF_MEMORY - {"GpuMemoryFull"}
        and (rule == "GpuMemoryRanOut" or not capture.has_memory)
    ):
        expected = "WARMING_UP"
    return None if status == expected else Untrue(f"{FAMILY}{rule}", f"the status {status}", f"it is {expected}")


def _finding_claims(capture: Capture, rule: str, finding: Finding) -> Claims:
    """Hold a finding's facts to be those of a rank, or of ranks beside each other, with most to win."""
    where = f"{FAMILY}{rule}"
    if rule in ACROSS:
        every = [found for found in capture.across[rule] if found.sure]
        most = max(found.gain_share for found in every)
        tried = [
            list(_across_claims(capture, where, finding, found))
            for found in every
            if found.gain_share >= most - 2.0 * SHARE_WITHIN
        ]
    else:
        tried = [list(_rank_claims(capture, rank, rule, finding)) for rank in capture.worst(rule)]
    yield from min(tried, key=lambda claims: sum(claim is not None for claim in claims))


def _rank_claims(capture: Capture, rank: Rank, rule: str, finding: Finding) -> Claims:
    where = f"{FAMILY}{rule}"
    gain_ns, gain_share = capture.gain(rank, rule)
    names = [each.name for each in capture.sure_ranks(rule)]
    of_capture: dict[str, Any] = {
        **_of_capture(capture, gain_ns, gain_share),
        "ranks_affected": len(names),
        "ranks_read": len(capture.ranks),
    }
    named = [fact["value"] for fact in finding["facts"] if fact["name"] == "rank"]
    expected = names[:NAMED] if len(capture.ranks) > 1 else []
    # A finding has no more than so many facts: the second rank is left out.
    full = len(finding["facts"]) >= MOST_FACTS and bool(named) and named == expected[: len(named)]
    yield None if named == expected or full else Untrue(where, f"ranks {named}", f"they are {names}")
    for fact in finding["facts"]:
        name = fact["name"]
        recompute = OF_RULE.get((rule, name), FACTS.get(name))
        if name in {"rank", "evidence"}:
            continue
        if name in of_capture:
            yield _equal(where, fact, of_capture[name])
        elif recompute is None:
            yield Untrue(where, name, UNCHECKED)
        else:
            yield _equal(where, fact, recompute(rank.trace))
            yield from _threshold_claims(rank, rule, fact)
    fault = evidence_fault(rank.trace, rule, finding["facts"])
    yield None if fault is None else Untrue(where, "evidence", fault)


def _threshold_claims(rank: Rank, rule: str, fact: dict[str, Any]) -> Claims:
    """Hold a fact's threshold, and that it is of the GPU that it names."""
    where, name, threshold = f"{FAMILY}{rule}", fact["name"], fact.get("threshold")
    if threshold is not None:
        recompute = THRESHOLDS.get(name)
        if name == "gpus":
            truth = 1.0
        elif rule == "SyncStall" and name == "idle_share":
            truth = 0.05
        elif recompute is None:
            yield Untrue(where, f"the threshold of {name}", UNCHECKED)
            return
        else:
            truth = float(recompute(rank.trace))
        yield _equal(where, {**fact, "name": f"threshold of {name}", "value": threshold}, truth)
    device = fact.get("device")
    if device is not None:
        holds = DEVICES.get((rule, name))
        if holds is None:
            yield Untrue(where, f"the GPU of {name}", UNCHECKED)
        elif not holds(rank.trace, int(device.removeprefix("gpu"))):
            yield Untrue(where, f"{name} of {device}", "it is another GPU")
        else:
            yield None


def _across_claims(capture: Capture, where: str, finding: Finding, found: Found) -> Claims:
    truths = {**found.facts, **_of_capture(capture, found.gain_ns, found.gain_share)}
    said = {fact["name"] for fact in finding["facts"]}
    for name in ("exchange_ratio", "remedy"):
        # What a rank exchanges is said where it explains that it is late, and then what to do about it.
        holds = (name in said) == ("exchange_ratio" in truths)
        yield (
            None if holds else Untrue(where, f"{name} is {'' if name in said else 'not '}said", "the exchange differs")
        )
    for fact in finding["facts"]:
        name, threshold = fact["name"], fact.get("threshold")
        if name in {"evidence", "remedy"}:
            continue
        yield _equal(where, fact, truths[name]) if name in truths else Untrue(where, name, UNCHECKED)
        if threshold is not None:
            truth = THRESHOLDS_ACROSS.get(name, math.nan)
            yield _equal(where, {**fact, "name": f"threshold of {name}", "value": threshold}, truth)
    shown = [(fact["series"], fact["value"]) for fact in finding["facts"] if fact["name"] == "evidence"]
    for (what, value), (_, lasts) in zip(shown, found.evidence, strict=False):
        # Of lines that last as long any may stand first.
        holds = value == lasts and (what, value) in found.evidence
        yield None if holds else Untrue(where, f"evidence {what} = {value}", f"it is among {found.evidence[:3]}")


def _of_capture(capture: Capture, gain_ns: float, gain_share: float) -> dict[str, Any]:
    return {
        "traces": len(capture.ranks),
        "framework": ", ".join(sorted({rank.recording.framework for rank in capture.ranks})),
        "gain_share": gain_share,
        "gain_per_step": gain_ns,
    }


def _equal(where: str, fact: dict[str, Any], truth: Any) -> Untrue | None:
    said, name, unit = fact["value"], fact["name"], fact.get("unit", "")
    if isinstance(truth, str):
        holds = bool(said == truth)
    else:
        within = {"share": SHARE_WITHIN, "ns": NS_WITHIN}.get(unit, TIME_WITHIN)
        within = 0.051 if name == "kernels_per_step" else within
        holds = not isinstance(said, str) and abs(float(said) - float(truth)) <= within
    return None if holds else Untrue(where, f"{name} = {said}", f"it is {truth}")


def _sentence_claims(rule: str, finding: Finding) -> Claims:
    """Hold that each number of a finding's sentences is one of its facts."""
    sayable = Sayable()
    for fact in finding["facts"]:
        sayable.add_fact(fact)
        for said in (fact["value"], fact.get("threshold")):
            _say(sayable, said, fact.get("unit", ""))
    for name in ("reason", "advice"):
        # What tensor cores need is of no trace.
        text = (finding[name] or "").replace("multiples of 8, better of 64", "").replace("multiples of 8", "")
        yield from text_claims(f"{FAMILY}{rule}, {name}", text, sayable)


def _words_claim(rule: str, finding: Finding) -> Untrue | None:
    """Hold what a late rank is said to compute beside the others: as long, less, or so many times as long."""
    if rule != "LateRank":
        return None
    told = {fact["name"]: fact["value"] for fact in finding["facts"]}
    ratio = told["compute_ratio"]
    said = "as long as the" if TIMES > ratio >= 1.0 / TIMES else "less than" if ratio < TIMES else f"{ratio:.2f} times"
    expected = f"It computes {said}"
    if "exchange_ratio" in told:
        expected = (
            f"It exchanges {told['exchange_ratio']:.2f} times the data of the others all to all, and computes {said}"
        )
    holds = expected in finding["reason"]
    return None if holds else Untrue(f"{FAMILY}{rule}", finding["reason"], f"it computes {ratio} times as long")


def _say(sayable: Sayable, said: Any, unit: str) -> None:
    """Add a number in the units in which sentences about traces say it: milliseconds and microseconds."""
    if isinstance(said, int | float):
        scale = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}.get(unit)
        sayable.counts.append(float(said))
        if unit == "bytes":
            sayable.bytes.append(float(said))
        if scale is not None:
            sayable.seconds.append(said * scale)


def _time_claim(folder: Path, rule: str, finding: Finding) -> Untrue | None:
    """Hold that an episode begins when the capture's last trace was written: as names say it, else as files do."""
    named = [file.name.split(".")[1] for file in (folder / "kernel-traces").iterdir() if ".pt.trace" in file.name]
    times = [int(each) / 1e3 for each in named]
    times = times or [file.stat().st_mtime for file in (folder / "kernel-traces").iterdir()]
    starts = [datetime.fromisoformat(episode["start"]).astimezone(UTC).timestamp() for episode in finding["episodes"]]
    if all(abs(start - max(times)) < 1e-3 for start in starts):
        return None
    return Untrue(f"{FAMILY}{rule}", f"episodes from {starts}", f"the capture is of {max(times)}")
