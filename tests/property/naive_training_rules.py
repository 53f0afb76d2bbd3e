"""The rules once more, plainly: each over a whole run in memory, from its definition alone.

A function returns at which steps a rule fires.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.steps import Run, Step
from trainguard.formats.tensors.step_view import Mode


def chosen(step: Step, collections: str = "", patterns: list[str] | None = None) -> list[str]:
    found = [name for each in collections.split(",") for name in step.collections.get(each.strip(), ())]
    found += [name for name in step.tensors for pattern in patterns or () if re.search(pattern, name)]
    return sorted({name for name in found if name in step.tensors})


def numeric(values: Any) -> bool:
    return values.dtype.kind in "iuf"


def vanishing_gradient(run: Run, threshold: float = 1e-7) -> list[int]:
    return [
        step.step
        for step in run.steps
        if any(np.abs(step.tensors[g].astype(float)).mean() < threshold for g in chosen(step, "gradients"))
    ]


def exploding_tensor(run: Run, only_nan: bool = False) -> list[int]:
    bad = np.isnan if only_nan else lambda values: ~np.isfinite(values)
    return [
        step.step
        for step in run.steps
        if any(values.dtype.kind == "f" and bad(values).any() for values in step.tensors.values())
    ]


def poor_weight_initialization(
    run: Run, threshold: float = 10.0, distribution_range: float = 0.001, patience: int = 5, steps: int = 10
) -> list[int]:
    found, seen, best, waited = [], 0, math.inf, 0
    for step in run.steps:
        inputs, gradients = chosen(step, "", [".*relu_input"]), chosen(step, "gradients")
        losses = chosen(step, "losses")
        variances = [step.tensors[name].astype(float).var() for name in inputs]
        gaps = [np.subtract(*np.percentile(step.tensors[name].astype(float), [95, 5])) for name in gradients]
        gaps = [gap for gap in gaps if not math.isnan(gap)]
        usable = len(variances) >= 2 and not any(map(math.isnan, variances))
        if not (usable or gaps or losses):
            continue
        seen += 1
        fires = bool(gaps) and min(gaps) < distribution_range
        if usable:
            low, high = min(variances), max(variances)
            fires |= bool(high > 0) if low == 0 else bool(high / low > threshold)
        if losses:
            loss = np.mean([step.tensors[name].astype(float).mean() for name in losses])
            waited = 0 if loss < best else waited + 1
            best = min(best, loss)
            fires |= waited >= patience
        if seen <= steps and fires:
            found.append(step.step)
    return found


def inactive(values: Any, active: Any, threshold: float) -> float:
    shares = 100.0 * active.reshape(values.shape[0], -1).sum(axis=0) / values.shape[0]
    return 100.0 * float((shares < threshold).mean())


def saturated_activation(run: Run, threshold_inactivity: float = 1.0, threshold_layer: float = 50.0) -> list[int]:
    found = []
    for step in run.steps:
        for name in chosen(step, "", [".*tanh_input", ".*sigmoid_input"]):
            low, high = (-9.4999, 9.4999) if "tanh" in name else (-23.0, 16.99999)
            values = step.tensors[name]
            if inactive(values, (values > low) & (values < high), threshold_inactivity) > threshold_layer:
                found.append(step.step)
                break
    return found


def dead_relu(run: Run, threshold_inactivity: float = 1.0, threshold_layer: float = 50.0) -> list[int]:
    return [
        step.step
        for step in run.steps
        if any(
            inactive(step.tensors[name], step.tensors[name] > 0, threshold_inactivity) > threshold_layer
            for name in chosen(step, "", [".*relu_output"])
        )
    ]


def weight_update_ratio(
    run: Run,
    num_steps: int | None = None,
    large_threshold: float = 10.0,
    small_threshold: float = 1e-8,
    epsilon: float = 1e-9,
) -> list[int]:
    found = []
    for index, step in enumerate(run.steps):
        training = any(each.mode is Mode.TRAIN and chosen(each, "weights") for each in run.steps[: index + 1])
        if step.mode is not (Mode.TRAIN if training else Mode.GLOBAL):
            continue
        for name in chosen(step, "weights"):
            before = [each for each in run.steps[:index] if each.mode is step.mode and name in each.tensors]
            if num_steps is not None:
                before = [each for each in before if each.step >= step.step - num_steps][:1]
            if not before:
                continue
            was, now = before[-1].tensors[name].astype(float), step.tensors[name].astype(float)
            ratio = np.linalg.norm(now - was) / (np.linalg.norm(was) + epsilon)
            if ratio > large_threshold or ratio < small_threshold:
                found.append(step.step)
                break
    return found


def all_zero(run: Run, threshold: float = 100.0) -> list[int]:
    return [
        step.step
        for step in run.steps
        if any(
            values.dtype.kind in "iufb" and 100.0 * (values == 0).sum() / values.size >= threshold
            for values in step.tensors.values()
        )
    ]


def class_imbalance(
    run: Run, threshold_imbalance: float = 10.0, threshold_misprediction: float = 0.7, samples: int = 500
) -> list[int]:
    found = []
    counts: Counter[int] = Counter()
    wrong: Counter[int] = Counter()
    for step in run.steps:
        if not ("labels" in step.tensors and "predictions" in step.tensors):
            continue
        labels, predictions = np.rint(step.tensors["labels"]), np.rint(step.tensors["predictions"])
        for label, prediction in zip(labels.astype(int).tolist(), predictions.astype(int).tolist(), strict=True):
            counts[label] += 1
            wrong[label] += label != prediction
        if counts.total() >= samples and (
            max(counts.values()) / min(counts.values()) > threshold_imbalance
            or any(wrong[label] / counts[label] > threshold_misprediction for label in counts)
        ):
            found.append(step.step)
    return found


def loss_not_decreasing(
    run: Run, num_steps: int = 10, diff_percent: float = 0.1, increase_threshold_percent: float = 5.0
) -> list[int]:
    found = []
    last: dict[tuple[str, Mode], int] = {}
    for index, step in enumerate(run.steps):
        modes = {each.mode for each in run.steps[: index + 1] if scalars(each)}
        wanted = next((mode for mode in (Mode.EVAL, Mode.TRAIN, Mode.GLOBAL) if mode in modes), None)
        if step.mode is not wanted:
            continue
        fires = False
        for name in scalars(step):
            saved = [each for each in run.steps[:index] if each.mode is step.mode and name in scalars(each)]
            references = [each for each in saved if each.mode_step <= step.mode_step - num_steps]
            if not references or step.mode_step - last.get((name, step.mode), -math.inf) < num_steps:
                continue
            last[name, step.mode] = step.mode_step
            was, now = float(references[-1].tensors[name].reshape(-1)[0]), float(step.tensors[name].reshape(-1)[0])
            if was == 0:
                fires |= now >= 0 and diff_percent > 0
                continue
            decrease = 100.0 * (was - now) / abs(was)
            fires |= decrease < diff_percent if decrease >= 0 else -decrease > increase_threshold_percent
        if fires:
            found.append(step.step)
    return found


def scalars(step: Step) -> list[str]:
    return [name for name in chosen(step, "losses") if step.tensors[name].size == 1 and numeric(step.tensors[name])]


def loss_of(step: Step, names: list[str]) -> float | None:
    return float(np.mean([step.tensors[name].astype(float).mean() for name in names])) if names else None


def overfit(run: Run, patience: int = 1, ratio_threshold: float = 0.1) -> list[int]:
    if all(step.mode is Mode.GLOBAL for step in run.steps):
        return overfit_of_pairs(run, patience, ratio_threshold)
    found: list[int] = []
    train: list[float] = []
    validation: list[float] = []
    counter = 0
    for step in run.steps:
        loss = loss_of(step, chosen(step, "losses"))
        if loss is None:
            continue
        if step.mode is Mode.EVAL:
            validation.append(loss)
            continue
        if validation:
            if train and np.sum(train) != 0:
                ratio = (np.mean(validation) - np.mean(train)) / abs(np.mean(train))
                counter = counter + 1 if ratio > ratio_threshold else 0
                if counter >= patience:
                    found.append(step.step)
            train, validation = [], []
        train.append(loss)
    return found


def overfit_of_pairs(run: Run, patience: int, ratio_threshold: float) -> list[int]:
    found = []
    counter = 0
    for step in run.steps:
        if {"train-rmse", "validation-rmse"} <= set(step.tensors) and step.tensors["train-rmse"][0] != 0:
            train, validation = float(step.tensors["train-rmse"][0]), float(step.tensors["validation-rmse"][0])
            counter = counter + 1 if (validation - train) / abs(train) > ratio_threshold else 0
            if counter >= patience:
                found.append(step.step)
    return found


def overtraining(run: Run, patience_train: int = 5, patience_validation: int = 10, delta: float = 0.01) -> list[int]:
    found = []
    best: dict[Mode, float] = {}
    waited: Counter[Mode] = Counter()
    for step in run.steps:
        groups: defaultdict[Mode, list[str]] = defaultdict(list)
        for name in chosen(step, "losses"):
            if step.mode in (Mode.TRAIN, Mode.EVAL):
                groups[step.mode].append(name)
            elif step.mode is Mode.GLOBAL and re.fullmatch(r"\w+-\S+", name):
                groups[Mode.TRAIN if name.startswith("train-") else Mode.EVAL].append(name)
        for mode, names in groups.items():
            loss = loss_of(step, names)
            assert loss is not None
            if mode not in best or math.isnan(best[mode]) or loss < best[mode] - delta:
                best[mode], waited[mode] = loss, 0
            else:
                waited[mode] += 1
        if groups and (waited[Mode.TRAIN] >= patience_train or waited[Mode.EVAL] >= patience_validation):
            found.append(step.step)
    return found


def similar_across_runs(run: Run) -> list[int]:
    found = []
    for step in run.steps:
        other = next((each for each in run.others["other"].steps if each.step == step.step), None)
        if other is None:
            continue
        for name in set(step.tensors) & set(other.tensors):
            one, two = step.tensors[name], other.tensors[name]
            exact = one.dtype.kind in "OUSb"
            if (
                one.shape != two.shape
                or (exact and (one != two).any())
                or not (exact or np.allclose(one, two, 1e-5, 1e-8, equal_nan=True))
            ):
                found.append(step.step)
                break
    return found


def stalled_training(run: Run, threshold: float = 1800) -> list[int]:
    found, longest = [], 0.0
    for before, after in zip(run.steps, run.steps[1:], strict=False):
        gap = after.at - before.at
        if gap > max(6 * 3_600.0, threshold, 2.0 * longest):
            continue
        if longest and gap > max(threshold, 2.0 * longest):
            found.append(before.step)
        else:
            longest = max(longest, gap)
    return found


def tensor_variance(run: Run, max_threshold: float | None = None, min_threshold: float | None = None) -> list[int]:
    found = []
    for step in run.steps:
        variances = [values.astype(float).var() for values in step.tensors.values() if numeric(values)]
        high = max_threshold is not None and any(variance > max_threshold for variance in variances)
        low = min_threshold is not None and any(variance < min_threshold for variance in variances)
        if high or low:
            found.append(step.step)
    return found


def unchanged_tensor(run: Run, num_steps: int = 3, rtol: float = 1e-5, atol: float = 1e-8) -> list[int]:
    found = []
    for index, step in enumerate(run.steps):
        for name, now in step.tensors.items():
            history = [each for each in run.steps[: index + 1] if each.mode is step.mode and name in each.tensors]
            values = [each.tensors[name] for each in history[-num_steps:]]
            if len(values) == num_steps and all(
                was.shape == now.shape
                and ((was == now).all() if now.dtype.kind in "OUSb" else np.allclose(was, now, rtol, atol))
                for was in values
            ):
                found.append(step.step)
                break
    return found


def check_input_images(
    run: Run, threshold_mean: float = 0.2, threshold_samples: int = 500, channel: int = 1
) -> list[int]:
    found = []
    seen: defaultdict[str, list[Any]] = defaultdict(list)
    for step in run.steps:
        fires = False
        for name in chosen(step, "", [".*hybridsequential0_input_0"]):
            seen[name].append(step.tensors[name].astype(float))
            images = np.concatenate(seen[name])
            means = np.moveaxis(images, channel, 0).reshape(images.shape[channel], -1).mean(axis=1)
            fires |= len(images) >= threshold_samples and bool((np.abs(means) > threshold_mean).any())
        if fires:
            found.append(step.step)
    return found


def nlp_sequence_ratio(run: Run, tokens: tuple[int, ...] = (0,), thresholds: tuple[float, ...] = (50.0,)) -> list[int]:
    return [
        step.step
        for step in run.steps
        if any(
            100.0 * (step.tensors[name] == token).sum() / step.tensors[name].size > threshold
            for name in chosen(step, "", [".*embedding0_input_0"])
            for token, threshold in zip(tokens, thresholds, strict=False)
        )
    ]


NAIVE: dict[str, Callable[..., list[int]]] = {
    "VanishingGradient": vanishing_gradient,
    "ExplodingTensor": exploding_tensor,
    "PoorWeightInitialization": poor_weight_initialization,
    "SaturatedActivation": saturated_activation,
    "DeadRelu": dead_relu,
    "WeightUpdateRatio": weight_update_ratio,
    "AllZero": all_zero,
    "ClassImbalance": class_imbalance,
    "LossNotDecreasing": loss_not_decreasing,
    "Overfit": overfit,
    "Overtraining": overtraining,
    "SimilarAcrossRuns": similar_across_runs,
    "StalledTrainingRule": stalled_training,
    "TensorVariance": tensor_variance,
    "UnchangedTensor": unchanged_tensor,
    "CheckInputImages": check_input_images,
    "NLPSequenceRatio": nlp_sequence_ratio,
}
