"""Recomputes rules over tensors that judge a step as a whole: labels, trees, checksums, and how weights began."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tests.claims.tensor_copies import copies, holds
from tests.claims.tensor_files import Step
from tests.claims.tensor_values import Seen, numbers, variance

# The facts of a finding by name; none of a step that no finding is of.
Facts: TypeAlias = dict[str, Any]

# By fact what it should say, in ``fires`` whether the step fires; a list holds all values that are as true.
Truths: TypeAlias = dict[str, Any]

# Judges a step; None where it lacks what the rule needs.
Whole: TypeAlias = Callable[[Seen, Facts], Truths | None]

CLOSE = 1e-12


def poor_weights(seen: Seen, facts: Facts) -> Truths | None:
    """Compare variances of inputs, ranges of gradients, and the loss with its best, at the first steps."""
    best, waited, checked = math.nan, 0, 0
    truths: Truths | None = None
    for step in seen.so_far:
        truths = None
        if checked == seen.parameters["steps"]:
            return None
        losses = [float(step.tensors[name].ravel()[0]) for name in seen.run.members(step, "losses")]
        if losses:
            mean = sum(losses) / len(losses)
            better = math.isnan(best) or mean < best
            best, waited = (mean, 0) if better else (best, waited + 1)
        found = began(seen, step, waited if losses else None)
        if found:
            checked += 1
            truths = {"fires": any(fires for fires, _ in found.values())}
            truths |= {name: value for name, (fires, value) in found.items() if fires or not truths["fires"]}
    return truths


def began(seen: Seen, step: Step, waited: int | None) -> dict[str, tuple[bool, float]]:
    """Return by fact whether it fires, and its value."""
    found = {}
    inputs = seen.run.matching(step, seen.parameters["activation_inputs_regex"])
    spreads = [each for name in inputs if (each := variance(step, name)) is not None]
    if len(spreads) > 1 and not any(map(math.isnan, spreads)):
        ratio = max(spreads) / min(spreads) if min(spreads) else math.inf if max(spreads) else 1.0
        found["variance_ratio"] = ratio > seen.parameters["threshold"], ratio
    limit = seen.parameters["distribution_range"]
    each_range = [_range(step, name, limit) for name in seen.run.members(step, "gradients")]
    ranges = [each for each in each_range if each is not None and not math.isnan(each)]
    if ranges:
        found["gradient_range"] = min(ranges) < limit, min(ranges)
    if waited is not None:
        found["steps_without_lower_loss"] = waited >= seen.parameters["patience"], float(waited)
    return found


def _range(step: Step, name: str, limit: float) -> float | None:
    if name in step.tensors:
        values = numbers(step.tensors[name])
        with np.errstate(all="ignore"):
            return None if values is None else float(np.percentile(values, 95.0) - np.percentile(values, 5.0))
    least, most = step.reduction(name, "min"), step.reduction(name, "max")
    return most - least if least is not None and most is not None and most - least < limit else None


def class_imbalance(seen: Seen, facts: Facts) -> Truths | None:
    """Count the samples of each class over all steps so far, and those predicted wrongly."""
    counts, wrong, held = Counter[int](), Counter[int](), False
    for step in seen.so_far:
        names = [seen.run.matching(step, seen.parameters[name])[:1] for name in ("labels_regex", "predictions_regex")]
        pair = [step.tensors.get(name) for each in names for name in each]
        held = len(pair) == 2 and all(each is not None for each in pair)
        if not held:
            continue
        labels, predictions = (np.rint(each.astype(np.float64)).ravel() for each in pair if each is not None)
        counts.update(labels.astype(int).tolist())
        wrong.update(labels[labels != predictions].astype(int).tolist())
    if not held:
        return None
    if counts.total() < seen.parameters["samples"]:
        return {"fires": False, "samples": float(counts.total())}
    ratio = max(counts.values()) / min(counts.values())
    share = max(wrong[each] / counts[each] for each in counts)
    out, missed = ratio > seen.parameters["threshold_imbalance"], share > seen.parameters["threshold_misprediction"]
    named = int(facts["class"]["value"]) if "class" in facts else None
    shares = {each: wrong[each] / counts[each] for each in counts}
    return {
        "fires": out or missed,
        "class_ratio": ratio,
        "largest_class_samples": max(counts.values()),
        "smallest_class_samples": min(counts.values()),
        "largest_class": [each for each in counts if counts[each] == max(counts.values())],
        "smallest_class": [each for each in counts if counts[each] == min(counts.values())],
        "share_predicted_wrongly": share,
        "class": [each for each in counts if shares[each] == share],
        "class_samples": counts[named] if named is not None else math.nan,
        "samples_predicted_wrongly": wrong[named] if named is not None else math.nan,
    }


def confusion(seen: Seen, facts: Facts) -> Truths | None:
    """Compare labels with predictions, by the class that is predicted."""
    pair = [seen.step.tensors.get(seen.parameters[name]) for name in ("labels", "predictions")]
    if any(each is None for each in pair):
        return None
    labels, predictions = (each.astype(np.int64).ravel() for each in pair if each is not None)
    classes = sorted({*labels.tolist(), *predictions.tolist()})
    shares = {
        (label, predicted): float((labels == label)[predictions == predicted].sum())
        / max(float((predictions == predicted).sum()), 1.0)
        for label in classes
        for predicted in classes
    }
    right = min(shares[each, each] for each in classes)
    other = max((share for (label, predicted), share in shares.items() if label != predicted), default=0.0)
    low, high = right < seen.parameters["min_diag"], other > seen.parameters["max_off_diag"]
    named = {name: int(facts[name]["value"]) for name in ("label_class", "predicted_class") if name in facts}
    truths: Truths = {"fires": low or high, "share_right": right, "share_of_another_class": other}
    if len(named) == 2:
        is_other = named["label_class"] != named["predicted_class"]
        of_named = shares[named["label_class"], named["predicted_class"]]
        alike = math.isclose(of_named, other if is_other else right, abs_tol=CLOSE)
        truths |= {
            name: float(value) if alike else f"no class of that share: {of_named}" for name, value in named.items()
        }
        truths["predicted_samples"] = float((predictions == named["predicted_class"]).sum())
    return truths


def features(seen: Seen, facts: Facts) -> Truths | None:
    """Add up the greatest importances."""
    names = seen.run.matching(seen.step, seen.parameters["tensor_regex"])
    each = {name: float(seen.step.tensors[name].ravel()[0]) for name in names if name in seen.step.tensors}
    if not sum(each.values()):
        return None
    ordered = sorted(each.values(), reverse=True)
    top = ordered[: seen.parameters["nfeatures"]]
    share = sum(top) / sum(ordered)
    return {
        "fires": share > seen.parameters["threshold"],
        "importance_share": share,
        "top_features": len(top),
        "features": len(ordered),
        "nfeatures": seen.parameters["nfeatures"],
        "feature": [name for whole, value in each.items() for name in (whole, whole.rpartition("/")[2])
                    if value >= top[-1]],
    }  # fmt: skip


def tree_depth(seen: Seen, facts: Facts) -> Truths | None:
    """Work out the depth of the step's tree, by its greatest node number or by its branches."""
    if "trees/Node" not in seen.step.tensors:
        return None
    depth = math.floor(math.log2(max(float(seen.step.tensors["trees/Node"].max()), 1.0)))
    if seen.parameters["true_depth"]:
        ids, yes, no = (seen.step.tensors[f"trees/{name}"].tolist() for name in ("ID", "Yes", "No"))
        below = {node: {left, right} & set(ids) for node, left, right in zip(ids, yes, no, strict=True)}
        roots = set(ids) - {child for children in below.values() for child in children}
        depth = max(_depth(below, root) for root in roots)
    return {"fires": depth > seen.parameters["depth"], "tree_depth": depth}


def _depth(below: dict[str, set[str]], node: str) -> int:
    return max((1 + _depth(below, child) for child in below[node]), default=0)


def ranks(seen: Seen, facts: Facts) -> Truths | None:
    """Compare the hashes that ranks saved, or where they did not their checksums."""
    if holds(seen.step):
        return copies(seen, facts)
    sums = {
        int(name.rpartition("/")[2]): str(float(values.ravel()[0]))
        for name, values in seen.step.tensors.items()
        if name.startswith("trainguard/checksum/")
    }
    if len(sums) < 2:
        return None
    counts = Counter(sums.values())
    most = next(sums[rank] for rank in sorted(sums) if counts[sums[rank]] == max(counts.values()))
    apart = sorted(rank for rank in sums if sums[rank] != most)
    return {
        "fires": bool(apart),
        "ranks": len(sums),
        "ranks_apart": len(apart),
        "ranks_alike": counts[most],
        "checksum": most,
        "checksum_apart": {f"rank {rank}": sums[rank] for rank in apart},
    }


WHOLES: dict[str, Whole] = {
    "PoorWeightInitialization": poor_weights,
    "ClassImbalance": class_imbalance,
    "Confusion": confusion,
    "FeatureImportanceOverweight": features,
    "TreeDepth": tree_depth,
    "RanksOutOfSync": ranks,
}
