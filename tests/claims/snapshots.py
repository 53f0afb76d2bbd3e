"""Holds findings on memory snapshots against the events of the files: facts, evidence, sentences, statuses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.claims.claim import UNCHECKED, Untrue
from tests.claims.kernel_evidence import MOST_FACTS
from tests.claims.sentences import Sayable, text_claims
from tests.claims.snapshot_facts import SOON, Said, SnapshotFacts, findings, says
from tests.claims.snapshot_files import read_values

FAMILY = "kernels/"
RULES = ("GpuMemoryRanOut", "GpuMemoryFragmented", "GpuMemoryGrows", "GpuMemoryHeld")
NAMED, WITHIN = 2, 5.1e-5
SHARES = {"unused_share", "reserved_share", "held_share"}

Claims = Iterator[Untrue | None]


def snapshot_claims(folder: Path, report: dict[str, Any]) -> Claims:
    """Yield, for each fact, sentence and status of the rules on a job's newest snapshots, what is untrue, or None."""
    files = sorted((folder / "kernel-traces").glob("rank*"))
    read: dict[str, SnapshotFacts] = {}
    for rank, file in enumerate(files):
        try:
            read[f"rank {rank}"] = SnapshotFacts(read_values(file))
        except ValueError:
            continue
    of_rank = {name: findings(each) for name, each in read.items()}
    found = {each["rule"].removeprefix(FAMILY): each for each in report["findings"] if each["rule"].startswith(FAMILY)}
    yield from (Untrue(f"{FAMILY}{rule}", "a finding", UNCHECKED) for rule in found.keys() - set(RULES))
    for rule in RULES:
        said = {name: each[rule] for name, each in of_rank.items() if rule in each}
        yield _status(rule, said, report, judged=any(rule in says(each) for each in read.values()))
        sure = {name: each for name, each in said.items() if each[1]}
        if rule in found and sure:
            whole: dict[str, Any] = {"snapshots": len(files), "ranks_affected": len(sure), "ranks_read": len(read)}
            whole |= {"gain_share": 0.0, "gain_per_step": 0}
            severest = [each for each in sure.values() if _is_severe(each)] or [*sure.values()]
            tried = [list(_facts(rule, found[rule], each, whole)) for each in severest]
            yield from min(tried, key=lambda claims: sum(claim is not None for claim in claims))
            yield _ranks(rule, found[rule], list(sure))
            yield from _sentences(rule, found[rule])


def _is_severe(said: Said) -> bool:
    return bool(said[0].get("steps_left", SOON) < SOON)


def _status(rule: str, said: dict[str, Said], report: dict[str, Any], *, judged: bool) -> Untrue | None:
    status = next(each["status"] for each in report["rules"] if each["rule"] == f"{FAMILY}{rule}")
    expected = "OK" if judged else "WARMING_UP"
    if said:
        expected = "FIRED" if any(each[1] for each in said.values()) else "WARMING_UP"
    return None if status == expected else Untrue(f"{FAMILY}{rule}", f"the status {status}", f"it is {expected}")


def _facts(rule: str, finding: dict[str, Any], said: Said, whole: dict[str, Any]) -> Claims:
    facts, _, evidence = said
    where = f"{FAMILY}{rule}"
    truths = {**whole, **facts}
    shown = []
    for fact in finding["facts"]:
        name, value = fact["name"], fact["value"]
        if name == "evidence":
            shown.append(fact["series"])
        elif name not in {"rank", "remedy"}:
            yield _equal(where, name, value, truths.get(name, UNCHECKED))
        if fact.get("device", "gpu0") != "gpu0":
            yield Untrue(where, f"{name} of {fact['device']}", "it is of gpu0")
    missing = facts.keys() - {fact["name"] for fact in finding["facts"]}
    yield Untrue(where, "no fact", f"{sorted(missing)}") if missing else None
    # A finding has room for so many facts; of places that hold as much any may stand first.
    yield None if set(shown) <= set(evidence) else Untrue(where, f"evidence {shown}", f"it is {evidence}")


def _equal(where: str, name: str, value: Any, truth: Any) -> Untrue | None:
    if isinstance(truth, set):
        holds = value in truth
    elif name in SHARES and not isinstance(truth, str):
        holds = abs(value - truth) <= WITHIN
    else:
        holds = value == truth
    return None if holds else Untrue(where, f"{name} = {value}", f"it is {truth}")


def _ranks(rule: str, finding: dict[str, Any], expected: list[str]) -> Untrue | None:
    named = [fact["value"] for fact in finding["facts"] if fact["name"] == "rank"]
    # A finding has no more than so many facts: the second rank is left out.
    full = len(finding["facts"]) >= MOST_FACTS and bool(named) and named == expected[: len(named)]
    holds = named == expected[:NAMED] or full
    return None if holds else Untrue(f"{FAMILY}{rule}", f"ranks {named}", f"they are {expected}")


def _sentences(rule: str, finding: dict[str, Any]) -> Claims:
    sayable = Sayable()
    for fact in finding["facts"]:
        sayable.add_fact(fact)
        for said in (fact["value"], fact.get("threshold")):
            if isinstance(said, int | float):
                sayable.counts.append(float(said))
                sayable.bytes.append(float(said))
    for name in ("reason", "advice"):
        yield from text_claims(f"{FAMILY}{rule}, {name}", finding[name] or "", sayable)
