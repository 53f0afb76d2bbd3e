"""Holds the first sentences of a report against its ledger, its findings and the raw job."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.claims.claim import Untrue
from tests.claims.context import gaps_of
from tests.claims.raw import ACTIVE, RawJob
from tests.claims.sentences import Sayable, text_claims
from tests.claims.times import epoch

BUCKETS = {
    "without samples": "no_samples",
    "restarts": "restart",
    "hanging": "hang",
    "computing garbage": "broken",
    "start-up": "start_up",
    "after the last work": "tail",
    "exposed communication": "communication",
    "waiting for slower ranks": "peers",
    "waiting for batches": "data",
    "saving checkpoints": "checkpoint",
    "idle in evaluation": "evaluation",
    "waiting for the host": "host",
    "idle": "idle",
    "not explained": "unexplained",
}
_WORKED = re.compile(r"its (?:GPU|([\d,]+) GPUs) worked ((?:more|less) than )?([\d.]+) %")
_LARGEST = re.compile(r"((?:more|less) than )?([\d.]+) % of it was ([a-z -]+?)(?=[;.])")
_UNEXPLAINED = re.compile(r"for (?:(?:more|less) than )?([\d.]+) % of the paid time no rule says why")
_MISSING = re.compile(r"(\S+) has no samples for ([\d.,]+) (s|min|h) of its [\d.,]+ (?:s|min|h)")
_MEDIANS = re.compile(
    r"on (\S+) the medians are ([\d.]+) % of GPU and ([\d.]+) % of CPU, and 95 % of the points are at or below "
    r"([\d.]+) % of GPU and ([\d.]+) % of CPU"
)
# A job whose nodes are all silent for so long was interrupted, unless a GPU works so soon after.
INTERRUPTED_S, AT_ONCE_S = 120.0, 30.0

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3_600.0}
_MONEY = re.compile(r"\b[A-Z]{3} ([\d,]+(?:\.\d+)?)")
_ACCOUNTS = re.compile(r"(\w+) accounts for ((?:more|less) than )?([\d.]+) %")


def verdict_claims(job: RawJob, report: dict[str, Any]) -> Iterator[Untrue | None]:
    """Yield what is untrue of how the job is, what to change, and what it cost."""
    verdict, shares = report["verdict"], {entry["bucket"]: entry["share"] for entry in report["ledger"]}
    gpus = sum(entry["gpus"] for entry in report["ledger_by_node"])
    for match in _WORKED.finditer(verdict["health"]):
        wrong = (
            not _is_share(match[3], match[2], shares.get("compute", -1.0))
            or int((match[1] or "1").replace(",", "")) != gpus
        )
        yield Untrue("verdict, health", match[0], f"{gpus} GPUs, {shares.get('compute')}") if wrong else None
    for match in _LARGEST.finditer(verdict["health"]):
        share = shares.get(BUCKETS.get(match[3], ""), -1.0)
        yield None if _is_share(match[2], match[1], share) else Untrue("verdict, health", match[0], f"it is {share}")
    yield from _cost(report, shares)
    sayable = _sayable(job, report, gpus)
    yield from _unexplained(report)
    for name in ("health", "change"):
        text = verdict[name]
        for pattern in (_WORKED, _LARGEST, _UNEXPLAINED, _MISSING, _MEDIANS):
            text = pattern.sub("", text)
        yield from text_claims(f"verdict, {name}", text, sayable)
    yield from _missing(job, verdict["health"])
    yield from _medians(job, verdict["change"])
    level, fired = verdict["level"], bool(report["findings"])
    yield Untrue("verdict", level, "there are findings") if level == "healthy" and fired else None
    yield Untrue("verdict", "mostly because", "it is less than half of the loss") if _is_overstated(report) else None


def _missing(job: RawJob, text: str) -> Iterator[Untrue | None]:
    """Hold for how long a node has no samples: the distances of over three intervals, each less one.

    Where the job had no instance nothing was to be seen: that time is none of the node's.
    """
    for match in _MISSING.finditer(text):
        node = job.nodes[match[1]]
        times = np.unique(np.concatenate([series.times for series in node.series.values()]))
        distances, said = np.diff(times), float(match[2].replace(",", "")) * _SECONDS[match[3]]
        places = np.flatnonzero(distances > max(5.0, 2.5 * node.interval_s))
        lost = [float(distances[place]) - node.interval_s for place in places]
        kinds = [_is_restart(job, float(times[place]), float(times[place + 1])) for place in places]
        least = sum(each for each, restart in zip(lost, kinds, strict=True) if restart is False)
        most = sum(each for each, restart in zip(lost, kinds, strict=True) if restart is not True)
        within = (len(lost) + 1) * node.interval_s + 0.1 * _SECONDS[match[3]]
        holds = least - within <= said <= most + within
        yield None if holds else Untrue("verdict, health", match[0], f"it has none for {least:.0f} to {most:.0f} s")


def _is_restart(job: RawJob, begin: float, end: float) -> bool | None:
    """Tell whether a silence is one of the whole job, with a start-up after it; None where nobody can say.

    GPUs that work within half a minute were there all the time. What they did is kept in 120 parts of the job: where
    these are longer than the half minute, or no sample lies in it, idle GPUs may not be known to be idle.
    """
    if end - begin < INTERRUPTED_S or _somebody_wrote(job, begin, end):
        return False
    part = (job.span[1] - job.span[0]) / 60.0
    found = {_works_within(job, end, seconds) for seconds in (AT_ONCE_S, max(part, 2.0 * AT_ONCE_S))}
    if len(found) > 1:
        return None
    coarse = max(part, job.interval_s) > AT_ONCE_S
    return False if found == {True} else None if coarse else True


def _somebody_wrote(job: RawJob, begin: float, end: float) -> bool:
    """Tell whether a node wrote a sample in the middle of a silence of another, or a step went on in it."""
    middle = begin + 0.5 * (end - begin)
    steps = [each for events in job.events.values() for each in events if each.phase.startswith("Step:")]
    samples = (series.times for node in job.nodes.values() for series in node.series.values())
    apart = 0.5 * (end - begin) - INTERRUPTED_S / 2.0
    near = any(bool((np.abs(times - middle) < apart).any()) for times in samples)
    return near or any(each.start < middle + apart and each.end > middle - apart for each in steps)


def _works_within(job: RawJob, at: float, seconds: float) -> bool:
    """Tell whether a GPU is active on average from a time on."""
    values = [
        series.between(at - job.interval_s, at + seconds)
        for node in job.nodes.values()
        for series in node.of("GPUUtilization").values()
    ]
    return any(float(each.mean()) >= ACTIVE for each in values if each.size)


def _medians(job: RawJob, text: str) -> Iterator[Untrue | None]:
    """Hold how busy a node was that may be too large: quantiles are counted by whole percents."""
    for match in _MEDIANS.finditer(text):
        points = job.nodes[match[1]].points
        gpu, cpu = np.nanmean(points.gpus[points.seen], axis=1), points.cpu_mean[~np.isnan(points.cpu_mean)]
        true = [np.quantile(values, share) for share in (0.5, 0.95) for values in (gpu, cpu)]
        for said, value in zip(match.groups()[1:], true, strict=True):
            holds = abs(float(said) - value) <= 0.6
            yield None if holds else Untrue("verdict, change", f"{said} % in {match[0]}", f"it is {value:.2f}")


def _unexplained(report: dict[str, Any]) -> Iterator[Untrue | None]:
    """Hold that no more is without a reason than is lost, and not claimed by a finding."""
    lost = report["verdict"]["wasted_share"] or 0.0
    claimed = sum(finding["wasted_share"] or 0.0 for finding in report["findings"])
    for match in _UNEXPLAINED.finditer(report["verdict"]["health"]):
        holds = float(match[1]) <= 100.0 * max(lost - claimed, 0.0) + 0.1
        yield None if holds else Untrue("verdict, health", match[0], f"{lost} is lost, and {claimed} claimed")


def _is_overstated(report: dict[str, Any]) -> bool:
    verdict = report["verdict"]
    if "mostly because" not in verdict["health"] or not verdict["wasted_share"]:
        return False
    root = next((each for each in report["findings"] if each["rule"] == verdict["rule"]), None)
    return root is None or (root["wasted_share"] or 0.0) < 0.5 * verdict["wasted_share"] - 1e-6


def _cost(report: dict[str, Any], shares: dict[str, float]) -> Iterator[Untrue | None]:
    text, where = report["verdict"]["cost"], "verdict, cost"
    for match in re.finditer(r"Of the paid time ((?:more|less) than )?([\d.]+) % was no work", text):
        holds = _is_share(match[2], match[1], 1.0 - shares.get("compute", 1.0))
        yield None if holds else Untrue(where, match[0], f"compute is {shares.get('compute')}")
    listed = re.search(r"was no work: ([^;.]+(?:\.\d[^;.]*)*)", text)
    for words, hedge, said in re.findall(r"([a-z -]+?) ((?:more|less) than )?([\d.]+) %", listed[1] if listed else ""):
        share = shares.get(BUCKETS.get(words.strip(), ""))
        holds = share is not None and _is_share(said, hedge, share)
        yield None if holds else Untrue(where, f"{words} {said} %", f"it is {share}")
    for rule, hedge, said in _ACCOUNTS.findall(text):
        share = next((each["wasted_share"] for each in report["findings"] if each["rule"] == rule), None)
        holds = share is not None and _is_share(said, hedge, share)
        yield None if holds else Untrue(where, f"{rule} accounts for {said} %", f"it is {share}")
    spent, lost = report["cost"]["spent"], report["verdict"]["lost"]
    for said in _MONEY.findall(
        text.partition("a day")[0] if "a day" not in text else text.partition("; it goes on")[0]
    ):
        amount = float(said.replace(",", ""))
        known = [value for value in (spent, lost) if value is not None]
        holds = any(abs(amount - value) <= max(0.0051, 0.51 if amount >= 10_000 else 0.0) for value in known)
        holds = holds or "less than" in text
        yield None if holds else Untrue(where, f"USD {said}", f"USD {lost} of {spent}")


def _is_share(said: str, hedge: str | None, share: float) -> bool:
    percent = 100.0 * share
    if hedge:
        return percent > float(said) - 1e-9 if hedge.startswith("more") else percent < float(said) + 1e-9
    decimals = len(said.partition(".")[2])
    return abs(percent - float(said)) <= 0.5 * 10.0**-decimals + 1e-6


def _sayable(job: RawJob, report: dict[str, Any], gpus: int) -> Sayable:
    """Return what the first sentences may say: all facts, the ledger, and how many rules and nodes there are."""
    sayable = Sayable(counts=[float(gpus)])
    for finding in report["findings"]:
        for fact in finding["facts"]:
            sayable.add_fact(fact)
        for episode in finding["episodes"]:
            sayable.times += [epoch(at) for at in (episode["start"], episode["end"]) if at is not None]
            sayable.names |= {*episode["nodes"], *episode["gpus"]}
            sayable.counts.append(float(len(episode["gpus"])))
        counts = (finding["nodes"], finding["nodes_affected"], finding["earlier_episodes"] + len(finding["episodes"]))
        sayable.counts += [float(count) for count in counts]
    verdict = report["verdict"]
    sayable.percents += [100.0 * entry["share"] for entry in report["ledger"]]
    counts = (len(report["findings"]), len(verdict["judged"]), len(verdict["judged"]) + len(verdict["not_judged"]))
    sayable.counts += [float(count) for count in counts]
    sayable.counts += [float(number) for number in range(len(report["rules"]) + 1)]
    sayable.names |= set(job.nodes)
    for node in job.nodes.values():
        gaps, last = gaps_of(node), max(each.last for each in job.nodes.values())
        sayable.times += [at for gap in gaps for at in gap]
        lost = [end - begin for begin, end in gaps]
        sayable.seconds += [node.last - node.first, last - node.last, sum(lost), *lost]
        sayable.seconds += [sum(lost) - len(lost) * node.interval_s, node.last - node.first + node.interval_s]
    start, end = job.span
    sayable.times += [start, end]
    return sayable
