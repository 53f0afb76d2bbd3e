"""Answers as they were reviewed: JSON files of statuses, kinds and facts, each number to six digits, and no sentences.

A sentence has its test beside the rule's text (`tests/unit/rules/texts`): a change of words changes nothing here.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trainguard.core.finding import Fact, Patience
from trainguard.rules.rule_result import RuleResult

ACCEPT = "TRAINGUARD_ACCEPT_SNAPSHOT"
DIGITS = 6
SENTENCES = frozenset({"reason", "advice", "past_reason", "past_advice", "clause", "cost", "found", "text", "progress"})
NOTHING: tuple[Any, ...] = (None, [], {}, "", 0, False)
# Larger numbers, such as times, are kept as they are.
MOST = 1e9


def compare(answer: dict[str, Any], file: Path) -> None:
    """Fail unless an answer is the recorded one, and name the places that differ; write it where that is accepted."""
    found = json.loads(json.dumps(rounded(answer)))
    if os.environ.get(ACCEPT):
        file.parent.mkdir(exist_ok=True)
        file.write_text(_lines(found), encoding="utf-8")
    recorded = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    if recorded != found:
        places = "\n".join(_differing("", recorded, found)[:20])
        pytest.fail(f"not as in {file.name}: review what differs, then run `make snapshot`\n{places}")


def plain_result(result: RuleResult) -> dict[str, Any]:
    """Return all that a rule says but its sentences, without what it leaves unsaid."""
    said = {name: getattr(result, name) for name in _NUMBERS}
    given = {name: value for name, value in said.items() if value not in (None, False, (), "")}
    given |= {} if result.measure is None else {"measure": f"{result.measure.what} {result.measure.unit}".strip()}
    given |= {} if result.progress is None else {"progress": plain_progress(result.progress)}
    given |= {"facts": plain_facts(result.facts)} if result.facts else {}
    details = result.plain_details
    return given | ({"details": details} if details else {})


def plain_progress(progress: Patience) -> str:
    """Return how far a rule is, for example ``240/1000 points, streak 3, window 240 from 0.0 to 60.0``."""
    parts = [f"{progress.seen}/{progress.needed} {progress.counts}"]
    parts += [] if progress.streak is None else [f"streak {progress.streak}"]
    if progress.window_points is not None:
        parts.append(f"window {progress.window_points} from {progress.window_start} to {progress.window_end}")
    return ", ".join(parts)


def plain_facts(facts: Iterable[Fact]) -> list[str]:
    """Return each fact on one line, for example ``power 70.5 W algo-1/gpu3 (90) 0.0..60.0``."""
    return [_fact(each) for each in facts]


def _fact(fact: Fact) -> str:
    msgspec.json.encode(fact)  # a number of numpy's is none that a row holds
    assert fact.start is None or fact.end is None or fact.start <= fact.end, fact
    assert not fact.name.startswith("mean_utilization") or 0.0 <= float(fact.value) <= 100.0, fact
    where = "/".join(each for each in (fact.node, fact.device) if each)
    limit = "" if fact.threshold is None else f"({rounded(fact.threshold)})"
    over = "" if fact.start is None and fact.end is None else f"{_time(fact.start)}..{_time(fact.end)}"
    parts = (fact.name, str(rounded(fact.value)), fact.unit, fact.series or "", where, limit, over)
    return " ".join(part for part in parts if part)


def _time(at: float | None) -> str:
    return "" if at is None else f"{at:.1f}"


def digest(said: Any) -> str:
    """Return a short name of all that was said, each number to six digits."""
    return hashlib.sha256(json.dumps(rounded(said), sort_keys=True).encode()).hexdigest()[:12]


def judged(said: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last judgement, and a digest of all: only what fires or sums up is shown with its facts."""
    last = {name: value for name, value in said[-1].items() if name != "details"}
    if last["status"] in QUIET:
        last = {name: value for name, value in last.items() if name in {"status", "kind", "measured", "progress"}}
    return {"all": digest(list(said)), **last}


QUIET = frozenset({"NOT_APPLICABLE", "WARMING_UP", "WAITING_FOR_DATA", "OK"})
_NUMBERS = (
    *("status", "kind", "measured", "threshold", "worst", "data_points", "affected_share", "wasted_share", "pooled"),
    *("confidence", "idle_node", "oversized", "onset", "until", "gpus", "time_left_s", "score", "near_threshold"),
    "needs_longer",
)


def _lines(answer: dict[str, Any]) -> str:
    """Return an answer as JSON, what lies below its first two levels on one line."""
    parts = [f"{json.dumps(key)}: {_part(each)}" for key, each in answer.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _part(part: Any) -> str:
    if not part or not isinstance(part, dict):
        return json.dumps(part, ensure_ascii=False)
    inner = [f" {json.dumps(key)}: {json.dumps(each, ensure_ascii=False)}" for key, each in part.items()]
    return "{\n" + ",\n".join(inner) + "\n}"


def rounded(answer: Any) -> Any:
    """Return an answer with each number to six digits."""
    if isinstance(answer, dict):
        return {str(key): rounded(each) for key, each in answer.items()}
    if isinstance(answer, list | tuple):
        return [rounded(each) for each in answer]
    if isinstance(answer, float) and not math.isfinite(answer):
        return str(answer)
    return float(f"{answer:.{DIGITS}g}") if isinstance(answer, float) and abs(answer) < MOST else answer


def _differing(place: str, recorded: Any, found: Any) -> list[str]:
    if isinstance(recorded, dict) and isinstance(found, dict):
        keys = [*recorded, *(key for key in found if key not in recorded)]
        return [line for key in keys for line in _differing(f"{place}.{key}", recorded.get(key), found.get(key))]
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        pairs = enumerate(zip(recorded, found, strict=True))
        return [line for at, pair in pairs for line in _differing(f"{place}[{at}]", *pair)]
    return [] if recorded == found else [f"{place}: {found!r}, recorded {recorded!r}"]


def plain_fields(value: Any) -> Any:
    """Return a dataclass, and all in it, as plain values without sentences and the fields that say nothing."""
    if isinstance(value, Fact):
        return _fact(value)
    if isinstance(value, Patience):
        return plain_progress(value)
    if is_dataclass(value) or isinstance(value, msgspec.Struct):
        names = [each.name for each in fields(value)] if is_dataclass(value) else value.__struct_fields__
        named = {name: plain_fields(getattr(value, name)) for name in names}
        return {name: each for name, each in named.items() if each not in NOTHING and name not in SENTENCES}
    if isinstance(value, Mapping):
        return {str(name): plain_fields(each) for name, each in value.items()}
    return [plain_fields(each) for each in value] if isinstance(value, list | tuple) else value
