"""Recomputes the facts of rules over saved tensors from the tensors, and at which steps the rules fire."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.claims import training
from tests.claims.claim import UNCHECKED, Claim, Untrue
from tests.claims.sentences import Sayable, text_claims
from tests.claims.tensor_classes import WHOLES, Facts, Truths
from tests.claims.tensor_files import GLOBAL, TRAIN, TensorRun, read_tensors
from tests.claims.tensor_losses import LOSSES
from tests.claims.tensor_runs import similar
from tests.claims.tensor_unused import unused
from tests.claims.tensor_values import VALUES, Measure, Readings, Seen, bad_reductions, channel_means
from tests.claims.times import epoch

FAMILY = "training/"
CLOSE = 1e-6
STEP_WHOLES = {**WHOLES, **LOSSES}
# By rule the fact that says what was measured, and what measures each tensor of a step.
MEASURES: dict[str, tuple[str, Measure]] = {**VALUES, "SimilarAcrossRuns": ("difference", similar)}

Claims = Iterator[Claim | None]


@dataclass(frozen=True)
class Steps:
    """At which steps of a run a rule has judged, and at which it fires: places."""

    judged: list[int]
    firing: list[int]

    @property
    def episodes(self) -> list[list[int]]:
        """The places at which it fires, those in a row together."""
        found: list[list[int]] = []
        before = dict(zip(self.judged[1:], self.judged, strict=False))
        for place in self.firing:
            if found and before.get(place) == found[-1][-1]:
                found[-1].append(place)
            else:
                found.append([place])
        return found


def tensor_claims(folder: Path, report: dict[str, Any]) -> Claims:
    """Yield, for each fact, sentence and rule of a run with saved tensors, what is untrue, or None."""
    run = read_tensors(folder)
    parameters = {entry["rule"]: entry["parameters"] for entry in report["rules"]}
    findings = {finding["rule"]: finding for finding in report["findings"]}
    for rule, settings in parameters.items():
        name = rule.removeprefix(FAMILY)
        if name in MEASURES or name in STEP_WHOLES:
            yield from _steps_claims(run, name, settings, findings.get(rule))
    for rule, finding in findings.items():
        yield from _finding_claims(run, rule.removeprefix(FAMILY), parameters.get(rule, {}), finding)


def _judge(seen: Seen, rule: str, facts: Facts) -> tuple[Readings, Truths | None]:
    """Return what a rule finds at a step: readings of tensors, or of the whole; nothing where it judges none."""
    if not seen.in_range(seen.step):
        return {}, None
    if rule in MEASURES:
        readings = MEASURES[rule][1](seen)
        return readings, {"fires": any(each.fires for each in readings.values())} if readings else None
    return {}, STEP_WHOLES[rule](seen, facts)


def _steps_of(run: TensorRun, rule: str, settings: dict[str, Any]) -> Steps:
    judged, firing = [], []
    open_at: set[tuple[str, str]] = set()
    for place, step in enumerate(run.steps):
        readings, truths = _judge(Seen(run, place, settings), rule, {})
        if rule == "ExplodingTensor":
            # NaN goes on until the same tensor is finite in the same mode: other steps say nothing about it.
            open_at -= {(step.mode, name) for name, each in readings.items() if not each.fires}
            open_at |= {(step.mode, name) for name, each in readings.items() if each.fires}
            if open_at and truths is not None and not truths["fires"]:
                continue
        if truths is not None:
            judged.append(place)
            if truths["fires"]:
                firing.append(place)
    return Steps(judged, firing)


def _steps_claims(run: TensorRun, rule: str, settings: dict[str, Any], finding: dict[str, Any] | None) -> Claims:
    """Hold that a rule has a finding where it fires at some step, which is its newest, and since when."""
    steps = _steps_of(run, rule, settings)
    where = f"{FAMILY}{rule}"
    if finding is None:
        numbers = [run.steps[place].number for place in steps.firing]
        yield Untrue(where, "no finding", f"it fires at steps {numbers}") if numbers else None
        return
    if not steps.firing:
        yield Untrue(where, "a finding", "it fires at no step")
        return
    goes_on = steps.firing[-1] == steps.judged[-1]
    yield _equal(where, "ongoing", finding["ongoing"], goes_on)
    named = _named(run, rule, settings, steps.firing[-1])
    yield _equal(where, "step", _by_name(finding).get("step", {}).get("value"), named)
    if rule == "StalledTrainingRule":  # of which an episode begins when the patience is over
        return
    begins = [run.steps[episode[0]].at for episode in steps.episodes]
    for episode, at in zip(reversed(finding["episodes"]), reversed(begins), strict=False):
        start = epoch(episode["start"])
        yield None if abs(start - at) < 2e-3 else Untrue(where, f"an episode from {start}", f"it is from {at}")
    number = len(finding["episodes"]) + finding["earlier_episodes"]
    yield _equal(where, "number of episodes", number, len(begins))


def _named(run: TensorRun, rule: str, settings: dict[str, Any], place: int) -> int:
    """Return the number of the step that a rule names where it fires at one: of a stall the one before it."""
    _, truths = _judge(Seen(run, place, settings), rule, {})
    return int((truths or {}).get("names", run.steps[place].number))


def _by_name(finding: dict[str, Any]) -> Facts:
    return {fact["name"]: fact for fact in reversed(finding["facts"])}


def _finding_claims(run: TensorRun, rule: str, settings: dict[str, Any], finding: dict[str, Any]) -> Claims:
    where, facts = f"{finding['rule']}/{finding['finding_kind']}", _by_name(finding)
    yield from _text_claims(where, finding)
    if rule not in MEASURES and rule not in STEP_WHOLES:
        yield from _of_losses(run, where, finding)
        return
    place = _place(run, facts, rule)
    if place is None:
        yield Untrue(where, "step", f"no step is that: {facts.get('step')}")
        return
    seen = Seen(run, place, settings)
    readings, truths = _judge(seen, rule, facts)
    if truths is None or not truths["fires"]:
        yield Untrue(where, "step", f"the rule does not fire at step {run.steps[place].number}")
        return
    for fact in finding["facts"]:
        if fact["name"] == "step":
            yield _saved_at(run, where, fact)
        elif fact["name"] in {"unusable", "unusable_why"}:
            reasons = unused(run, rule, settings, len(run.steps) if finding["ongoing"] else place + 1)
            yield _unused_claim(where, fact, reasons)
        elif readings:
            yield _reading_claim(seen, rule, where, fact, readings, facts)
        else:
            yield from _truth_claims(where, fact, {**(truths or {}), **_thresholds(settings, fact)}, facts)


def _place(run: TensorRun, facts: Facts, rule: str) -> int | None:
    number = facts.get("until_step" if rule == "StalledTrainingRule" else "step", {}).get("value")
    return next((place for place, step in enumerate(run.steps) if step.number == number), None)


def _saved_at(run: TensorRun, where: str, fact: dict[str, Any]) -> Untrue | None:
    at = next((step.at for step in run.steps if step.number == fact["value"]), math.nan)
    right = all(abs(fact.get(end, math.nan) - at) < 1e-3 for end in ("from", "to"))
    return None if right else Untrue(where, f"step, from {fact.get('from')} to {fact.get('to')}", f"it is {at}")


def _reading_claim(
    seen: Seen, rule: str, where: str, fact: dict[str, Any], readings: Readings, facts: Facts
) -> Claim | None:
    """Hold a fact about the tensors that fire."""
    name, firing = fact["name"], [each for each in readings.values() if each.fires]
    if name == MEASURES[rule][0]:
        return _worst_claim(rule, where, fact, readings, facts)
    truth: Any = {"firing": len(firing), "judged": len(readings), "token": [each.token for each in firing]}.get(name)
    if name == "reduction_not_finite":
        saved = seen.step.reductions.get(fact["series"], {})
        truth = sorted(_said(kind) for kind in bad_reductions(saved, only_nan=seen.parameters["only_nan"]))
    elif name == "other_run":
        truth = seen.parameters["other_trials"]
    elif name == "tensor":
        most = max(each.over for each in readings.values() if each.fires)
        truth = [tensor for tensor, each in readings.items() if each.fires and each.over >= most * (1.0 - CLOSE)]
    elif name in {"channel", "images"}:
        means, count = channel_means(seen)[facts["channel_mean"]["series"]]
        truth = int(np.abs(means).argmax()) if name == "channel" else count
    return Untrue(where, name, UNCHECKED) if truth is None else _equal(where, name, fact["value"], truth)


def _worst_claim(rule: str, where: str, fact: dict[str, Any], readings: Readings, facts: Facts) -> Untrue | None:
    """Hold what was measured of the tensor that is named: it fires, and of those that do none is further over."""
    name, key = fact["name"], fact["series"]
    if rule == "NLPSequenceRatio":
        key = fact["series"], facts["token"]["value"]
    reading, worst = readings.get(key), max(each.over for each in readings.values() if each.fires)
    if reading is None or not reading.fires:
        return Untrue(where, f"{name} of {key}", "that does not fire")
    if reading.over < worst - CLOSE * abs(worst):
        return Untrue(where, f"{name} of {key}, the worst", f"others are worse, by {worst} to {reading.over}")
    wrong = _equal(where, f"threshold of {name}", fact.get("threshold"), reading.threshold)
    return wrong or _equal(where, name, fact["value"], reading.value)


def _said(kind: str) -> str:
    return f"{kind.removeprefix('abs_')} of absolute values" if kind.startswith("abs_") else kind


def _truth_claims(where: str, fact: dict[str, Any], truths: Truths, facts: Facts) -> Claims:
    name = fact["name"]
    if name not in truths:
        yield Untrue(where, name, UNCHECKED)
        return
    truth = truths[name].get(fact["device"]) if name in {"checksum_apart", "rank"} else truths[name]
    yield _equal(where, name, fact["value"], truth)
    threshold = truths.get(f"threshold of {name}")
    if threshold is not None:
        yield _equal(where, f"threshold of {name}", fact.get("threshold"), threshold)


def _thresholds(settings: dict[str, Any], fact: dict[str, Any]) -> Truths:
    """Return the threshold of a fact that a parameter sets."""
    of = {
        "variance_ratio": "threshold", "gradient_range": "distribution_range", "steps_without_lower_loss": "patience",
        "class_ratio": "threshold_imbalance", "share_predicted_wrongly": "threshold_misprediction",
        "share_right": "min_diag", "share_of_another_class": "max_off_diag", "importance_share": "threshold",
        "tree_depth": "depth",
    }  # fmt: skip
    name = of.get(fact["name"])
    return {} if name is None else {f"threshold of {fact['name']}": settings[name]}


def _unused_claim(where: str, fact: dict[str, Any], reasons: list[str]) -> Untrue | None:
    """Hold how often a tensor could not be used, and why the last one could not."""
    truth: Any = len(reasons) if fact["name"] == "unusable" else reasons[-1] if reasons else "that all were used"
    return _equal(where, fact["name"], fact["value"], truth)


def _of_losses(run: TensorRun, where: str, finding: dict[str, Any]) -> Claims:
    """Hold the facts of a rule over a whole loss, as those of a logged one are held."""
    facts = _by_name(finding)
    modes = {facts["mode"]["value"]} if "mode" in facts else {TRAIN, GLOBAL}
    held = [
        (step.number, float(step.tensors[name].ravel()[0]))
        for step in run.steps
        for name in run.members(step, "losses")
        if step.mode in modes
    ]
    steps, losses = (np.array([pair[at] for pair in held], dtype=np.float64) for at in (0, 1))
    yield from training.facts_claims(training.Run(steps, losses), where, finding["facts"])


def _text_claims(where: str, finding: dict[str, Any]) -> Claims:
    sayable = Sayable()
    for fact in finding["facts"]:
        sayable.add_fact(fact)
        # A share is said as it is, or in percent; so is a threshold.
        sayable.counts += [
            float(each) for each in (fact["value"], fact.get("threshold")) if isinstance(each, int | float)
        ]
    sayable.times += [epoch(at) for each in finding["episodes"] for at in (each["start"], each["end"]) if at]
    for name in ("reason", "advice"):
        yield from text_claims(f"{where}, {name}", finding[name] or "", sayable)


def _equal(where: str, what: str, value: Any, truth: Any) -> Untrue | None:
    """Compare a value with the truth, or with a list of which each is as true."""
    several = isinstance(truth, list) and not isinstance(value, list)
    holds = any(_same(value, each) for each in truth) if several else _same(value, truth)
    return None if holds else Untrue(where, f"{what} = {value}", f"it is {truth}")


def _same(value: Any, truth: Any) -> bool:
    if isinstance(truth, float | int) and not isinstance(truth, bool) and value is not None:
        number = float(value)
        if math.isnan(truth) or math.isinf(truth):
            return str(number) == str(float(truth))
        return math.isclose(number, truth, rel_tol=CLOSE, abs_tol=1e-300)
    return bool(value == truth)
