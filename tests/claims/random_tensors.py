"""Runs of saved tensors drawn at random: every rule over tensors has something to look at in some of them."""

import json
import math
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.tensor_files import HookWriter

START = 1_780_272_017.0
Generator = np.random.Generator
Tensors = dict[str, Any]

COLLECTIONS: dict[str, tuple[list[str], list[str]]] = {
    "gradients": ([], ["^gradient/"]),
    "weights": ([], ["^weight/"]),
    "losses": ([], ["^loss"]),
    "relu_output": ([], ["relu_output"]),
    "labels": (["labels"], []),
    "predictions": (["predictions"], []),
    "masks": ([], ["^mask/"]),
}
EXTREMES = ("min", "max", "abs_max")


@dataclass
class TensorJob:
    """What a run is: its steps, how far apart they are, and the parameters that its rules have."""

    seed: int
    steps: int
    every: int
    seconds: float
    modes: bool
    workers: int
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)


def tensor_job(seed: int) -> TensorJob:
    """Return the run of a seed."""
    rng = np.random.default_rng([seed, 11])
    job = TensorJob(
        seed=seed,
        steps=int(rng.integers(3, 24)),
        every=int(rng.choice([1, 1, 5, 10, 100])),
        seconds=float(rng.choice([0.5, 20.0, 700.0])),
        modes=bool(rng.random() < 0.4),
        workers=int(rng.choice([1, 1, 1, 2])),
    )
    job.parameters = _parameters(np.random.default_rng([seed, 12]))
    return job


def _parameters(rng: Generator) -> dict[str, dict[str, Any]]:
    """Return the rules with parameters: those of the documentation, or others near what the tensors hold."""
    chosen: dict[str, dict[str, Any]] = {
        "VanishingGradient": {"threshold": float(rng.choice([1e-7, 1e-4, 1e-2]))},
        "PoorWeightInitialization": {"threshold": float(rng.choice([2.0, 10.0, 100.0]))},
        "SaturatedActivation": {"threshold_layer": float(rng.choice([20.0, 50.0]))},
        "DeadRelu": {"threshold_inactivity": float(rng.choice([1.0, 30.0]))},
        "WeightUpdateRatio": {"large_threshold": float(rng.choice([0.5, 10.0]))},
        "AllZero": {"collection_names": "masks,weights", "threshold": float(rng.choice([50.0, 100.0]))},
        "ClassImbalance": {
            "samples": int(rng.choice([20, 500])),
            "labels_regex": "^labels",
            "predictions_regex": "^predictions",
        },
        "LossNotDecreasing": {"num_steps": int(rng.choice([1, 10, 30])), "diff_percent": float(rng.choice([0.1, 5.0]))},
        "Overfit": {"patience": int(rng.choice([1, 2]))},
        "Overtraining": {"patience_train": int(rng.choice([2, 5])), "delta": float(rng.choice([0.0, 0.01]))},
        "TensorVariance": {
            "tensor_regex": "^weight/,^gradient/",
            "min_threshold": float(rng.choice([1e-9, 1e-3])),
            "max_threshold": float(rng.choice([1.0, 50.0])),
        },
        "UnchangedTensor": {"tensor_regex": "^weight/,^mask/", "num_steps": int(rng.choice([2, 3, 4]))},
        "CheckInputImages": {"threshold_samples": int(rng.choice([8, 40]))},
        "NLPSequenceRatio": {"token_values": "0,7", "token_thresholds_percent": "40,20"},
        "Confusion": {"min_diag": float(rng.choice([0.5, 0.9]))},
        "FeatureImportanceOverweight": {"nfeatures": int(rng.choice([1, 3]))},
        "TreeDepth": {"true_depth": bool(rng.random() < 0.5)},
        "ExplodingTensor": {"only_nan": bool(rng.random() < 0.3)},
        "StalledTrainingRule": {"threshold": int(rng.choice([60, 1_800]))},
    }
    if rng.random() < 0.5:
        chosen["WeightUpdateRatio"]["num_steps"] = int(rng.choice([1, 20, 200]))
    for parameters in chosen.values():
        if rng.random() < 0.15:
            parameters["start_step"] = int(rng.choice([1, 20]))
    return chosen


def write_tensor_job(job: TensorJob, root: Path) -> Path:
    """Write the folder of a run as the hook leaves it, beside it that of another one like it; return it."""
    other = root / f"other-{job.seed}"
    _written(job, _Differences(np.random.default_rng([job.seed, 15]))).save_to(other / "debug-output")
    job.parameters["SimilarAcrossRuns"] = {"other_trials": str(other)}
    if job.seed % 2:
        job.parameters["SimilarAcrossRuns"]["tensor_regex"] = "^weight/,^mask/,^labels"
    folder = root / f"tensors-{job.seed}"
    _written(job).save_to(folder / "debug-output")
    (folder / "job.json").write_text(json.dumps({"schema_version": 1, "name": folder.name, "status": "Completed"}))
    return folder


def _written(job: TensorJob, differences: "_Differences | None" = None) -> HookWriter:
    """Return the files of a run, or of the other one: of one worker, and with some steps and tensors that differ."""
    rng = np.random.default_rng([job.seed, 13])
    workers = job.workers if differences is None else 1
    writer = HookWriter(workers=workers)
    for rank in range(workers):
        writer.collections(COLLECTIONS, worker=f"worker_{rank}")
    model = _Model(rng)
    at, within = START, {"TRAIN": 0, "EVAL": 0, "GLOBAL": 0}
    for place in range(job.steps):
        mode = "GLOBAL" if not job.modes else "EVAL" if place % 4 == 3 else "TRAIN"
        tensors = model.step(place)
        for rank in range(workers):
            named = tensors if rank == 0 else {name: np.multiply(value, 2) for name, value in model.shared(tensors)}
            if differences is not None:
                named = differences.of(named)
            if not named:
                continue
            writer.step(
                place * job.every,
                _reduced(np.random.default_rng([job.seed, 14]), named),
                worker=f"worker_{rank}",
                mode=mode,
                mode_step=within[mode],
                at=at,
            )
        within[mode] += job.every
        at += job.seconds * (1.0 + (30.0 if rng.random() < 0.04 else 0.1 * rng.random()))
    return writer.end()


@dataclass
class _Differences:
    """Changes the tensors of a step: some steps and tensors are missing, some are of another shape or value."""

    rng: Generator

    def __post_init__(self) -> None:
        self.often = float(self.rng.choice([0.0, 0.02, 0.2]))

    def of(self, tensors: Tensors) -> Tensors:
        """Return what the other run saved."""
        if self.rng.random() < 0.1:
            return {}
        found = {}
        for name, value in sorted(tensors.items()):
            how = self.rng.random()
            if how < self.often:
                found[name] = self._other(value)
            elif how < 0.97:
                found[name] = value
        return found

    def _other(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "fiu":
            return value[:-1] if isinstance(value, list) and len(value) > 1 else value
        kind, array = self.rng.integers(5), np.asarray(value)
        if kind == 0:
            return (array * (1.0 + 1e-9)).astype(array.dtype)
        if kind == 1:
            return np.concatenate([array.ravel(), array.ravel()[:1]])
        if kind == 2 and array.dtype.kind == "f":
            return np.full_like(array, math.nan)
        with np.errstate(over="ignore"):
            if kind == 3:
                apart = 10.0 ** self.rng.uniform(-9.0, 1.0, array.shape)
                return (array + apart).astype(array.dtype)
            return (array * 1.5 + self.rng.choice([0.0, 1.0, 1e-6])).astype(array.dtype)


def _reduced(rng: Generator, tensors: Tensors) -> Tensors:
    """Return tensors of which some are saved as reductions alone, the same ones at each step."""
    saved: Tensors = {}
    for name, value in sorted(tensors.items()):
        kinds = rng.random()
        if kinds > 0.12 or not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size < 2:
            saved[name] = value
            continue
        exact = value.astype(np.float64)
        with np.errstate(all="ignore"):
            every = {
                "min": exact.min(),
                "max": exact.max(),
                "abs_max": np.abs(exact).max(),
                "abs_mean": np.abs(exact).mean(),
                "mean": exact.mean(),
                "variance": exact.var(),
                "std": exact.std(),
                "l2": np.sqrt(np.square(exact).sum()),
            }
        chosen = EXTREMES if kinds < 0.04 else ("abs_mean", "l2") if kinds < 0.08 else tuple(every)
        saved |= {f"smdebug/reductions/{kind}/{name}": np.float64(every[kind]) for kind in chosen}
    return saved


@dataclass
class _Model:
    """Draws what a run saves at each step."""

    rng: Generator
    weights: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    loss: float = 2.0

    def __post_init__(self) -> None:
        rng = self.rng
        self.layers = int(rng.integers(1, 4))
        self.scales = 10.0 ** rng.uniform(-9.0, 1.0, self.layers)
        self.shapes = [tuple(int(size) for size in rng.integers(1, 9, int(rng.integers(1, 4)))) for _ in self.scales]
        self.falls = float(rng.choice([0.0, 0.02, 0.2, -0.1]))
        self.breaks = int(rng.choice([99, 99, 3, 8]))
        self.parts = rng.random(9) < 0.6
        self.copies = rng.spawn(1)[0]
        self.has_copies = self.copies.random() < 0.4
        for layer, shape in enumerate(self.shapes):
            name = f"weight/fc{layer}"
            self.weights[name] = rng.standard_normal(shape).astype(rng.choice(["float32", "float64", "float16"]))
            kind = str(rng.choice(["learns", "frozen", "jumps", "freezes", "zero"]))
            # A frozen weight is the worst one: in some runs none is, so that one that jumps is named.
            self.kinds[name] = "jumps" if self.falls in {0.2, -0.1} and kind != "learns" else kind

    def step(self, place: int) -> Tensors:
        """Return what is saved at a step."""
        tensors: Tensors = {}
        makers = (
            self._gradients, self._weights, self._masks, self._activations, self._inputs, self._classes,
            self._xgboost, self._checksums, self._losses,
        )  # fmt: skip
        for is_chosen, make in zip(self.parts, makers, strict=True):
            if is_chosen:
                tensors |= make(place)
        tensors = tensors or self._losses(place)
        return tensors | self._copies(place) if self.has_copies else tensors

    def shared(self, tensors: Tensors) -> list[tuple[str, Any]]:
        """Return what a second worker saves too: another value, which does not count beside the first one's."""
        return [(name, value) for name, value in tensors.items() if name.startswith(("gradient/", "weight/"))]

    def _gradients(self, place: int) -> Tensors:
        found: Tensors = {}
        for layer, (scale, shape) in enumerate(zip(self.scales, self.shapes, strict=True)):
            values = (scale * self.rng.standard_normal(shape)).astype(np.float32)
            if self.rng.random() < 0.1:
                values[...] = 0.0
            if place >= self.breaks and values.size > 1:
                values.flat[: int(self.rng.integers(1, values.size))] = self.rng.choice([math.nan, math.inf, -math.inf])
            found[f"gradient/fc{layer}"] = values
        return found

    def _weights(self, place: int) -> Tensors:
        for name, value in self.weights.items():
            kind = self.kinds[name]
            if kind == "zero":
                self.weights[name] = np.zeros_like(value)
            elif kind == "jumps" and self.rng.random() < 0.3:
                self.weights[name] = (value * 3.0).astype(value.dtype)
            elif kind == "learns" or (kind == "freezes" and place < 4):
                self.weights[name] = (value + 0.01 * self.rng.standard_normal(value.shape)).astype(value.dtype)
        return dict(self.weights)

    def _masks(self, place: int) -> Tensors:
        share = self.rng.choice([0.0, 0.4, 0.9])
        return {
            "mask/attention": self.rng.random((6, 7)) < share,
            "mask/positions": (self.rng.random(12) < share).astype(np.int32) * np.int32(place // 5 + 1),
        }

    def _activations(self, place: int) -> Tensors:
        rng, batch = self.rng, int(self.rng.integers(1, 40))
        outputs = rng.standard_normal((batch, 5, 3)) - rng.uniform(-1.0, 4.0, (5, 3))
        wide = rng.choice([1.0, 8.0, 40.0])
        return {
            "conv0_relu_output_0": np.maximum(outputs, 0.0).astype(np.float32),
            "fc_relu_output_0": np.maximum(rng.standard_normal(batch) - 2.0, 0.0),
            "fc0_relu_input_0": (wide * rng.standard_normal((batch, 4))).astype(np.float32),
            "fc1_relu_input_0": rng.standard_normal((batch, 6)).astype(np.float32),
            "rnn_tanh_input_0": (wide * rng.standard_normal((batch, 7))).astype(np.float32),
            "gate_sigmoid_input_0": 2.0 * wide * rng.standard_normal((batch, 2, 2)),
        }

    def _inputs(self, place: int) -> Tensors:
        rng, images = self.rng, int(self.rng.integers(1, 9))
        pixels = rng.standard_normal((images, 3, 4, 4)) + np.array([0.0, 0.4, -0.1])[:, None, None]
        return {
            "hybridsequential0_input_0": pixels.astype(np.float32),
            "embedding0_input_0": rng.choice([0, 3, 7, 9], (images, 20), p=[0.35, 0.3, 0.2, 0.15]),
        }

    def _classes(self, place: int) -> Tensors:
        rng, samples = self.rng, int(self.rng.integers(4, 60))
        labels = rng.choice(4, samples, p=[0.7, 0.15, 0.1, 0.05])
        wrong = rng.random(samples) < rng.choice([0.02, 0.4])
        return {"labels": labels.astype(np.float32), "predictions": np.where(wrong, (labels + 1) % 4, labels)}

    def _xgboost(self, place: int) -> Tensors:
        rng = self.rng
        features = {
            f"feature_importance/weight/f{at}": np.float64(rng.integers(1, 40)) for at in rng.permutation(9)[:6]
        }
        nodes = int(rng.integers(1, 70))
        return {**features, **_tree(nodes)}

    def _checksums(self, place: int) -> Tensors:
        sums = np.full(4, self.rng.standard_normal())
        if place % 5 == 4:
            sums[self.rng.integers(4)] += 0.25
        return {f"trainguard/checksum/{rank}": np.float64(each) for rank, each in enumerate(sums)}

    def _copies(self, place: int) -> Tensors:
        """Return hashes of six tensors by two groups of ranks; some are missing, apart, or of another moment."""
        rng, found = self.copies, Tensors()
        for first, size in ((0, 4), (4, 2)):
            good, wrong = rng.integers(-(2**63), 2**63, 6), rng.random()
            culprit, tensor = int(rng.integers(size)), int(rng.integers(6))
            for rank in range(size):
                hashes = good.copy()
                if wrong < 0.2 and rank == culprit:
                    hashes[tensor] += 1
                elif wrong < 0.3:
                    hashes[: 1 + tensor] += rank % 3
                group: dict[str, Any] = {
                    "of": "parameters",
                    "ranks": f"{first}-{first + size - 1}",
                    "copies": size,
                    "count": 6,
                }
                group |= {"layout": str(rng.choice(["a"] * 9 + ["b"])), "sure": True, "device": "cpu"}
                group |= {"moment": [int(rng.choice([7] * 19 + [8]))]}
                about: dict[str, Any] = {
                    "version": 1,
                    "at": float(rng.choice([1e9] * 19 + [1e9 + 99.0])),
                    "mode_step": place,
                }
                about |= {"attempt": "0", "left_out": 0, "sets": [group]}
                if rng.random() < 0.05:
                    continue
                name = f"trainguard/replicas/{first + rank}"
                listed = json.dumps([[[f"fc{number}", "float32", [2]] for number in range(6)]])
                found[name] = hashes
                found[f"{name}/about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
                found[f"{name}/tensors"] = np.frombuffer(zlib.compress(listed.encode()), np.uint8)
        return found

    def _losses(self, place: int) -> Tensors:
        self.loss *= 1.0 - self.falls * float(self.rng.random())
        loss = math.nan if place >= self.breaks and self.rng.random() < 0.5 else self.loss
        return {"loss": np.float32(loss)}


def _tree(nodes: int) -> Tensors:
    """Return a tree in which every node but the last ones has two branches."""
    split = np.arange(nodes) * 2 + 1
    return {
        "trees/Node": np.arange(nodes),
        "trees/ID": [f"0-{node}" for node in range(nodes)],
        "trees/Yes": [f"0-{int(left)}" if left < nodes else "nan" for left in split],
        "trees/No": [f"0-{int(left) + 1}" if left + 1 < nodes else "nan" for left in split],
    }
