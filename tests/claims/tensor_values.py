"""Measures each tensor of a step, as the documents of the rules over tensors say it is measured."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tests.claims.raw import Floats
from tests.claims.tensor_files import GLOBAL, TRAIN, Array, Step, TensorRun

SUMS = ("mean", "abs_mean", "std", "variance", "l2", "l1", "sum")


@dataclass(frozen=True, slots=True)
class Reading:
    """What was measured of a tensor, whether it fires, and how far it is over: the worst one is furthest."""

    value: float
    fires: bool
    over: float
    threshold: float | None
    token: float | None = None


@dataclass(frozen=True)
class Seen:
    """A step of a run, by its place among them, and the parameters of the rule that looks at it."""

    run: TensorRun
    place: int
    parameters: dict[str, Any]

    @property
    def step(self) -> Step:
        """The step."""
        return self.run.steps[self.place]

    def in_range(self, step: Step) -> bool:
        """Tell whether a step is checked, by ``start_step`` and ``end_step``."""
        start, end = self.parameters.get("start_step"), self.parameters.get("end_step")
        return (start is None or step.number >= start) and (end is None or step.number < end)

    @property
    def so_far(self) -> list[Step]:
        """The steps up to this one that are checked."""
        return [step for step in self.run.steps[: self.place + 1] if self.in_range(step)]

    def selected(self) -> list[str]:
        """Return the tensors that ``collection_names`` and ``tensor_regex`` select."""
        found: set[str] = set()
        for collection in self.parameters.get("collection_names") or ():
            found |= set(self.run.members(self.step, collection))
        patterns = self.parameters.get("tensor_regex") or ()
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            found |= set(self.run.matching(self.step, pattern))
        return sorted(found)

    def before(self, name: str) -> list[Step]:
        """Return the steps of the same mode before this one that hold a tensor, the newest first."""
        earlier = self.run.steps[: self.place]
        return [step for step in reversed(earlier) if step.mode == self.step.mode and name in step.names]


Readings: TypeAlias = dict[Any, Reading]
Measure: TypeAlias = Callable[[Seen], Readings]


def numbers(values: Array) -> Floats | None:
    """Return real numbers as float64; None of text, bools and complex numbers."""
    return values.astype(np.float64) if values.dtype.kind in "fiu" else None


def vanishing(seen: Seen) -> Readings:
    """Measure the mean of the absolute values of each gradient."""
    threshold = float(seen.parameters["threshold"])
    found: Readings = {}
    for name in seen.run.members(seen.step, "gradients"):
        mean = seen.step.reduction(name, "abs_mean")
        if mean is None and name in seen.step.tensors:
            mean = float(np.abs(seen.step.tensors[name].astype(np.float64)).mean())
        if mean is not None:
            found[name] = Reading(mean, mean < threshold, -mean, threshold)
    return found


def exploding(seen: Seen) -> Readings:
    """Count the entries of each tensor that are not finite; of reductions alone the count is not known."""
    chosen = seen.parameters.get("collection_names") or seen.parameters.get("tensor_regex")
    names = seen.selected() if chosen else [name for name in seen.step.names if not name.startswith("trees/")]
    only_nan, found = seen.parameters["only_nan"], {}
    for name in names:
        if name in seen.step.tensors:
            values = seen.step.tensors[name]
            if values.dtype.kind in "fc":
                bad = np.isnan(values) if only_nan else ~np.isfinite(values)
                found[name] = Reading(float(bad.sum()), bool(bad.any()), float(bad.mean()), 0.0)
            continue
        saved = {kind: value for kind, value in seen.step.reductions[name].items() if kind != "prod"}
        if saved:
            bad_kinds = bad_reductions(saved, only_nan=only_nan)
            found[name] = Reading(math.nan, bool(bad_kinds), 0.0, 0.0)
    return found


def bad_reductions(saved: dict[str, float], *, only_nan: bool) -> set[str]:
    """Return the reductions that say that entries are not finite: a sum may overflow, where extremes are finite."""
    if any(math.isfinite(saved[kind]) for kind in SUMS if kind in saved):
        return set()
    extremes = [saved[kind] for kind in ("min", "max") if kind in saved]
    if len(extremes) == 2 and all(map(math.isfinite, extremes)):
        return set()
    return {kind for kind, value in saved.items() if (math.isnan(value) if only_nan else not math.isfinite(value))}


def updates(seen: Seen) -> Readings:
    """Measure by how much each weight has changed, by what it was."""
    modes = {step.mode for step in seen.run.steps[: seen.place + 1] if seen.run.members(step, "weights")}
    if seen.step.mode != (TRAIN if TRAIN in modes else GLOBAL):
        return {}
    back, found = seen.parameters.get("num_steps"), {}
    for name in seen.run.members(seen.step, "weights"):
        earlier = seen.before(name)
        if back is not None:
            earlier = [step for step in earlier if step.number >= seen.step.number - back][::-1]
        if not earlier or name not in seen.step.tensors or name not in earlier[0].tensors:
            continue
        now, was = (step.tensors[name].astype(np.float64) for step in (seen.step, earlier[0]))
        if now.shape == was.shape:
            ratio = float(np.linalg.norm(now - was)) / (float(np.linalg.norm(was)) + seen.parameters["epsilon"])
            found[name] = _update(seen, ratio)
    return found


def _update(seen: Seen, ratio: float) -> Reading:
    large, small = seen.parameters["large_threshold"], seen.parameters["small_threshold"]
    over, under = (ratio / large if large else math.inf), (small / ratio if ratio else math.inf)
    is_small = ratio < small or (ratio <= large and under > over)
    return Reading(ratio, ratio < small or ratio > large, under if is_small else over, small if is_small else large)


def zeros(seen: Seen) -> Readings:
    """Count the zeros of each tensor, percent; of reductions alone where they decide it."""
    threshold, found = float(seen.parameters["threshold"]), {}
    for name in seen.selected():
        percent = zeros_saved(seen.step, name, threshold)
        if name in seen.step.tensors:
            values = seen.step.tensors[name]
            percent = 100.0 * float((values == 0).mean()) if values.dtype.kind in "fiucb" and values.size else None
        if percent is not None:
            found[name] = Reading(percent, percent >= threshold, percent, threshold)
    return found


def zeros_saved(step: Step, name: str, threshold: float) -> float | None:
    """Return the share of zeros that reductions alone tell, percent; None where they do not decide it."""
    saved = step.reductions.get(name, {})
    for kind in ("abs_mean", "abs_max", "l1"):
        if kind in saved and saved[kind] == 0.0:
            return 100.0
    least, most = saved.get("min", math.nan), saved.get("max", math.nan)
    if least > 0.0 or most < 0.0:
        return 0.0
    is_some = any(saved.get(kind, 0.0) > 0.0 for kind in ("abs_mean", "abs_max", "l1")) or least < 0.0 or most > 0.0
    return 0.0 if is_some and threshold >= 100.0 else None


def variance(step: Step, name: str) -> float | None:
    """Return a tensor's population variance, as it was saved where it was."""
    saved, deviation = step.reduction(name, "variance"), step.reduction(name, "std")
    if saved is not None:
        return saved
    if name not in step.tensors:
        return None if deviation is None else deviation**2
    values = numbers(step.tensors[name])
    with np.errstate(all="ignore"):
        return None if values is None else float(values.var())


def variances(seen: Seen) -> Readings:
    """Measure the variance of each tensor."""
    found: Readings = {}
    for name in seen.selected():
        value = variance(seen.step, name)
        if value is None:
            continue
        most, least = seen.parameters.get("max_threshold"), seen.parameters.get("min_threshold")
        above = -math.inf if most is None else value - most
        below = -math.inf if least is None else least - value
        fires = above > 0.0 or below > 0.0
        found[name] = Reading(value, fires, max(above, below), most if above >= below else least)
    return found


def unchanged(seen: Seen) -> Readings:
    """Count at how many of its newest saved steps each tensor is the same."""
    needed, found = int(seen.parameters["num_steps"]), {}
    for name in seen.selected():
        same, earlier = 1, seen.before(name)[: needed - 1]
        for step in earlier:
            same_then = alike(step, seen.step, name, seen.parameters)
            if same_then is None:
                same = 0
            if not same_then:
                break
            same += 1
        if same and (same <= len(earlier) or len(earlier) == needed - 1):
            found[name] = Reading(float(same), same >= needed, float(same), float(needed))
    return found


def alike(old: Step, new: Step, name: str, close: dict[str, Any]) -> bool | None:
    """Tell whether a tensor is the same at two steps; None where only reductions are, which do not differ."""
    if name in old.tensors and name in new.tensors:
        one, other = old.tensors[name], new.tensors[name]
        if one.shape != other.shape:
            return False
        if one.dtype.kind in "Ob":
            return bool((one == other).all())
        with np.errstate(all="ignore"):
            return bool(np.allclose(one, other, close["rtol"], close["atol"], close["equal_nan"]))
    saved = [(value, new.reduction(name, kind)) for kind, value in old.reductions.get(name, {}).items()]
    within = (close["rtol"], close["atol"], close["equal_nan"])
    differ = any(other is not None and not np.isclose(one, other, *within) for one, other in saved)
    return False if differ else None


def saturated(seen: Seen) -> Readings:
    """Measure the nodes of each layer of tanh or sigmoid that are hardly ever active, percent."""
    names = set(seen.selected())
    found: Readings = {}
    for name in sorted(names):
        of = "tanh" if "tanh" in name.lower() else "sigmoid"
        low, high = (seen.parameters[f"threshold_{of}_{end}"] for end in ("min", "max"))
        least, most = (seen.step.reduction(name, kind) for kind in ("min", "max"))
        percent = None
        if name in seen.step.tensors:
            values = seen.step.tensors[name]
            percent = _inactive((values > low) & (values < high), seen.parameters["threshold_inactivity"])
        elif least is not None and most is not None and low < least and most < high:
            percent = 0.0
        if percent is not None:
            layer = seen.parameters["threshold_layer"]
            found[name] = Reading(percent, percent > layer, percent, layer)
    return found


def dead(seen: Seen) -> Readings:
    """Measure the nodes of each layer of ReLU that are hardly ever above zero, percent."""
    found: Readings = {}
    for name in seen.selected():
        least, most = (seen.step.reduction(name, kind) for kind in ("min", "max"))
        percent = None
        if name in seen.step.tensors:
            percent = _inactive(seen.step.tensors[name] > 0, seen.parameters["threshold_inactivity"])
        elif most is not None and most <= 0.0:
            percent = 100.0
        elif least is not None and least > 0.0:
            percent = 0.0
        if percent is not None:
            layer = seen.parameters["threshold_layer"]
            found[name] = Reading(percent, percent > layer, percent, layer)
    return found


def _inactive(active: Array, threshold: float) -> float:
    """Return how many nodes are active in less than ``threshold`` % of a batch, percent of them."""
    shares = 100.0 * active.reshape(active.shape[0], -1).sum(axis=0) / active.shape[0]
    return 100.0 * float((shares < threshold).mean())


def tokens(seen: Seen) -> Readings:
    """Measure the share of each token in each sequence, percent."""
    found: Readings = {}
    values, thresholds = (seen.parameters[name] for name in ("token_values", "token_thresholds_percent"))
    for name in seen.run.matching(seen.step, seen.parameters["tensor_regex"]):
        if name not in seen.step.tensors:
            continue
        for token, threshold in zip(values, thresholds, strict=False):
            share = 100.0 * float((seen.step.tensors[name] == token).mean())
            found[name, token] = Reading(share, share > threshold, share - threshold, threshold, float(token))
    return found


def channel_means(seen: Seen) -> dict[str, tuple[Floats, int]]:
    """Return the mean of each channel (float64[C]) of each input over all images so far, and how many images."""
    axis, found = seen.parameters["channel"], {}
    for name in seen.run.matching(seen.step, seen.parameters["regex"]):
        held = [step.tensors[name].astype(np.float64) for step in seen.so_far if name in step.tensors]
        finite = [images for images in held if np.isfinite(images).all()]
        if name not in seen.step.tensors or not np.isfinite(seen.step.tensors[name]).all():
            continue
        by_channel = [np.moveaxis(images, axis, 0).reshape(images.shape[axis], -1) for images in finite]
        found[name] = np.concatenate(by_channel, axis=1).mean(axis=1), sum(images.shape[0] for images in finite)
    return found


def images(seen: Seen) -> Readings:
    """Measure the mean of the channel that is furthest from zero, of each input."""
    found: Readings = {}
    threshold = seen.parameters["threshold_mean"]
    for name, (means, count) in channel_means(seen).items():
        mean = float(max(means, key=abs))
        fires = count >= seen.parameters["threshold_samples"] and abs(mean) > threshold
        found[name] = Reading(mean, fires, abs(mean), threshold)
    return found


# By rule the fact that says what was measured, and what measures each tensor of a step.
VALUES: dict[str, tuple[str, Measure]] = {
    "VanishingGradient": ("mean_absolute_gradient", vanishing),
    "ExplodingTensor": ("entries_not_finite", exploding),
    "WeightUpdateRatio": ("relative_change", updates),
    "AllZero": ("zeros", zeros),
    "TensorVariance": ("variance", variances),
    "UnchangedTensor": ("same_steps", unchanged),
    "SaturatedActivation": ("saturated_nodes", saturated),
    "DeadRelu": ("dead_nodes", dead),
    "NLPSequenceRatio": ("token_share", tokens),
    "CheckInputImages": ("channel_mean", images),
}
