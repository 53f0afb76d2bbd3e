"""Judgements of custom rules, validated and cut to the size of a row."""

import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, get_args

import msgspec
import numpy as np

from trainguard.core.errors import RuleLoadError
from trainguard.core.finding import MOST_FACTS, Fact, Patience
from trainguard.core.records import Status
from trainguard.render.details import Details
from trainguard.rules.rule_result import IdleNode, Measure, RuleResult

TEXT_LENGTH = 1_000
NAME_LENGTH = 120
DETAILS_BYTES = 8_192
MOST_GPUS = 64
_SHARES = ("affected_share", "wasted_share", "confidence")
_TEXTS = {"advice": TEXT_LENGTH, "worst": NAME_LENGTH, "past_reason": TEXT_LENGTH, "past_advice": TEXT_LENGTH}


def sandboxed(rule: str, result: Any) -> RuleResult:
    """Return a judgement as a row and a report can hold it; raises RuleLoadError."""
    if not isinstance(result, RuleResult):
        raise RuleLoadError(rule, "judgement", type(result).__name__, "a RuleResult")
    is_status = isinstance(result.status, Status) and result.status is not Status.DISABLED
    _check(rule, "status", result.status, is_status, "a Status other than DISABLED")
    _check(rule, "oversized", result.oversized, isinstance(result.oversized, bool), "True or False")
    kinds = get_args(IdleNode)
    _check(rule, "idle_node", result.idle_node, result.idle_node in (None, *kinds), f"None or one of {kinds}")
    _check(rule, "progress", result.progress, isinstance(result.progress, Patience | None), "a Progress or None")
    checked: dict[str, Any] = {
        **{name: _text(rule, name, getattr(result, name), longest) for name, longest in _TEXTS.items()},
        **{name: _number(rule, name, getattr(result, name)) for name in ("measured", "threshold", "onset", "until")},
        **{name: _share(rule, name, getattr(result, name)) for name in _SHARES},
    }
    return replace(
        result,
        **checked,
        reason=_text(rule, "reason", result.reason, TEXT_LENGTH) or "no reason given.",
        measure=_measure(rule, result.measure),
        score=None,
        kind=_text(rule, "kind", result.kind, NAME_LENGTH) or "",
        facts=_facts(rule, result.facts),
        clause=_text(rule, "clause", result.clause, TEXT_LENGTH) or "",
        found=None,
        needs_longer=result.needs_longer is True,
        data_points=_count(rule, "data_points", result.data_points),
        pooled=_pooled(rule, result.pooled),
        pooled_by={},
        gpus=_gpus(rule, result.gpus),
        time_left_s=_time_left(rule, result.time_left_s),
        details=_details(rule, result.details),
    )


def _check(rule: str, field: str, value: Any, usable: bool, expected: str) -> None:
    if not usable:
        raise RuleLoadError(rule, field, value, expected)


def _text(rule: str, field: str, value: Any, longest: int) -> str | None:
    _check(rule, field, value, isinstance(value, str | None), "a text")
    return None if value is None else str(value)[:longest]


def _measure(rule: str, value: Any) -> Measure | None:
    _check(rule, "measure", value, isinstance(value, Measure | None), "a Measure or None")
    if value is None:
        return None
    what, unit = (_text(rule, "measure", each, NAME_LENGTH) or "" for each in (value.what, value.unit))
    return Measure(what, unit)


def _number(rule: str, field: str, value: Any) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    _check(rule, field, value, is_number, "a finite number or None")
    return float(value)


def _share(rule: str, field: str, value: Any) -> float | None:
    share = _number(rule, field, value)
    _check(rule, field, value, share is None or 0.0 <= share <= 1.0, "a share from 0 to 1, or None")
    return share


def _count(rule: str, field: str, value: Any) -> int:
    is_count = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 0
    _check(rule, field, value, bool(is_count), "a whole number from 0")
    return int(value)


def _facts(rule: str, value: Any) -> tuple[Fact, ...]:
    expected = f"a tuple of at most {MOST_FACTS} facts with finite numbers"
    if not isinstance(value, tuple) or len(value) > MOST_FACTS:
        raise RuleLoadError(rule, "facts", value, expected)
    try:
        facts = msgspec.convert(msgspec.to_builtins(value), tuple[Fact, ...])
    except (TypeError, ValueError, msgspec.ValidationError) as fault:
        raise RuleLoadError(rule, "facts", fault, expected) from fault
    numbers = (number for fact in facts for number in (fact.value, fact.start, fact.end, fact.threshold))
    if not all(math.isfinite(number) for number in numbers if isinstance(number, int | float)):
        raise RuleLoadError(rule, "facts", value, expected)
    return facts


def _pooled(rule: str, value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    _check(rule, "pooled", value, isinstance(value, tuple) and len(value) == 2, "two whole numbers, or None")
    return _count(rule, "pooled", value[0]), _count(rule, "pooled", value[1])


def _time_left(rule: str, value: Any) -> float | None:
    seconds = _number(rule, "time_left_s", value)
    _check(rule, "time_left_s", value, seconds is None or seconds >= 0.0, "a number of seconds from 0, or None")
    return seconds


def _gpus(rule: str, value: Any) -> tuple[str, ...]:
    is_short = isinstance(value, tuple) and len(value) <= MOST_GPUS
    _check(rule, "gpus", value, is_short, f"a tuple of at most {MOST_GPUS} names")
    return tuple(_text(rule, "gpus", each, NAME_LENGTH) or "" for each in value)


def _details(rule: str, details: Any) -> Mapping[str, Any]:
    """Return details as JSON has them: what cannot be written there would break the whole report."""
    try:
        body = msgspec.json.encode(details.plain() if isinstance(details, Details) else details)
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise RuleLoadError(rule, "details", f"{type(fault).__name__}: {fault}", "what JSON can hold") from fault
    if len(body) > DETAILS_BYTES:
        raise RuleLoadError(rule, "details", f"{len(body):,} bytes of JSON", f"at most {DETAILS_BYTES:,}")
    decoded = msgspec.json.decode(body)
    if not isinstance(decoded, dict):
        raise RuleLoadError(rule, "details", details, "a mapping")
    return decoded
