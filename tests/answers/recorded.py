"""Answers as they were reviewed: JSON files, each number to six digits."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trainguard.rules.rule_result import RuleResult

ACCEPT = "TRAINGUARD_ACCEPT_SNAPSHOT"
DIGITS = 6
MOST = 1e9
"""Larger numbers, such as times, are kept as they are."""


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
    """Return what a rule says, without what it leaves unsaid."""
    said = {each.name: getattr(result, each.name) for each in fields(result) if each.name not in {"details", "measure"}}
    given = {
        name: value
        for name, value in said.items()
        if value is not None and value is not False and value not in ((), {})
    }
    measure = None if result.measure is None else f"{result.measure.what} {result.measure.unit}"
    return {**given, "measure": measure, "details": result.plain_details}


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
    """Return a dataclass, and all in it, as plain values without the fields that say nothing."""
    if is_dataclass(value) or isinstance(value, msgspec.Struct):
        names = [each.name for each in fields(value)] if is_dataclass(value) else value.__struct_fields__
        named = {name: plain_fields(getattr(value, name)) for name in names}
        return {name: each for name, each in named.items() if each not in (None, [], {}, "", 0, False)}
    if isinstance(value, Mapping):
        return {str(name): plain_fields(each) for name, each in value.items()}
    return [plain_fields(each) for each in value] if isinstance(value, list | tuple) else value
