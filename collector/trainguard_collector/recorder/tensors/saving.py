"""Which tensors are saved, and at which steps: the managed hook's parameters of collections."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from operator import attrgetter, methodcaller
from typing import Any, Optional, Union

from trainguard_collector.recorder.tensors.batch import Reduced, StepBatch

DEFAULT_INTERVAL = 500
MODES = ("TRAIN", "EVAL", "PREDICT", "GLOBAL")
REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2")
ALLOWED = frozenset((*REDUCTIONS, *(f"abs_{name}" for name in REDUCTIONS)))
# What rules read of a tensor that is not saved in full. None asks for sizes of weights and biases.
DEFAULT_REDUCTIONS = ("min", "max", "mean", "std", "l2", "abs_mean")
OF_PARAMETERS = ("min", "max", "mean", "std", "l2")

# The managed hook's expressions where it has the collection.
PATTERNS: "Mapping[str, tuple[str, ...]]" = {
    "losses": (r"[Ll]oss_(?!input).*output", "^losses/"),
    "metrics": ("^metrics/",),
    "weights": ("^(?!gradient).*weight",),
    "biases": ("^(?!gradient).*bias",),
    "gradients": ("^gradient/",),
    "activations": (r"_output_\d+$",),
    "relu_input": (".*relu_input",),
    "relu_output": (".*relu_output",),
    "gradient_norm": ("^gradient_norm/",),
    "learning_rate": ("^learning_rate/",),
}

ALWAYS_SAVED = ("losses", "metrics", "gradient_norm", "learning_rate")
# Collections of single numbers, which have no reductions.
RAW = frozenset((*ALWAYS_SAVED, "checksums"))

BY_DEFAULT = ("gradients", "weights", "biases")
_STEP_PARAMETERS = ("save_interval", "save_steps", "start_step", "end_step")


@dataclass(frozen=True)
class SaveConfig:
    """Steps of one mode: those of ``save_steps``, and each ``save_interval``-th in ``[start_step, end_step)``."""

    save_interval: int = DEFAULT_INTERVAL
    save_steps: "tuple[int, ...]" = ()
    start_step: int = 0
    end_step: Optional[int] = None

    def saves(self, mode_step: int) -> bool:
        if mode_step in self.save_steps:
            return True
        if mode_step < self.start_step or (self.end_step is not None and mode_step >= self.end_step):
            return False
        return self.save_interval > 0 and mode_step % self.save_interval == 0


class CollectionConfig:
    """Tensors that are saved together, with the parameters of the managed class of that name.

    ``name`` is one of the hook's own (``losses``, ``weights``, ``relu_output``, …), ``activations``, or another.
    Parameters are ``include_regex``, the steps, also by mode (``train.save_interval``), ``reductions`` (with commas)
    and ``save_raw_tensor``. Raises ValueError for others, or a value that cannot be used.
    """

    def __init__(self, name: str, parameters: Optional[Mapping[str, Any]] = None) -> None:
        self.name = str(name)
        self.parameters = dict(parameters or {})
        for each in self.parameters:
            if each not in _KNOWN:
                raise ValueError(f"collection {name}: {each!r}, expected one of {', '.join(sorted(_KNOWN))}")


_KNOWN = {
    "include_regex",
    "reductions",
    "save_raw_tensor",
    "tensor_names",
    "save_histogram",
    "save_shape",
    *(f"{mode}{name}" for mode in ("", "train.", "eval.", "predict.", "global.") for name in _STEP_PARAMETERS),
}


@dataclass
class Collection:
    """A collection as it is recorded; ``reductions`` are empty where tensors are saved in full."""

    name: str
    patterns: "tuple[str, ...]" = ()
    listed: "tuple[str, ...]" = ()
    reductions: "tuple[str, ...]" = DEFAULT_REDUCTIONS
    with_value: bool = False
    by_mode: "dict[str, SaveConfig]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._searches = [re.compile(pattern).search for pattern in self.patterns]

    def holds(self, tensor: str) -> bool:
        return tensor in self.listed or any(search(tensor) for search in self._searches)

    def saves(self, mode: str, mode_step: int) -> bool:
        return self.by_mode[mode].saves(mode_step)

    def to_json(self, listed: Iterable[str] = ()) -> "dict[str, Any]":
        reduced = {"save_raw_tensor": self.with_value, "reductions": ",".join(self.reductions), "save_shape": False}
        return {
            "name": self.name,
            "include_regex": list(self.patterns),
            "tensor_names": sorted({*self.listed, *listed}),
            "reduction_config": reduced if self.reductions else None,
            "save_config": {mode: asdict(config) for mode, config in self.by_mode.items()},
            "save_histogram": False,
        }


def collections_of(given: "Optional[Iterable[Union[str, CollectionConfig]]]", every: int) -> "list[Collection]":
    """Return those that are given, else BY_DEFAULT, and always ALWAYS_SAVED; raises ValueError."""
    if isinstance(given, str):
        given = [given]
    configs = [CollectionConfig(each) if isinstance(each, str) else each for each in given or BY_DEFAULT]
    names = [config.name for config in configs]
    configs += [CollectionConfig(name) for name in ALWAYS_SAVED if name not in names]
    return [_collection(config, every) for config in configs]


def _collection(config: CollectionConfig, every: int) -> Collection:
    parameters = config.parameters
    default = "" if config.name in PATTERNS else None
    include = parameters.get("include_regex", default)
    if include is None and not parameters.get("tensor_names"):
        raise ValueError(f"collection {config.name}: no include_regex, expected one that matches its tensors")
    patterns = (*PATTERNS.get(config.name, ()), *([include] if include else ()))
    with_value = _flag(config.name, parameters.get("save_raw_tensor", False))
    given = _names(
        parameters.get("reductions", OF_PARAMETERS if config.name in ("weights", "biases") else DEFAULT_REDUCTIONS)
    )
    unknown = [each for each in given if each not in ALLOWED]
    if unknown:
        raise ValueError(f"collection {config.name}: reductions {unknown}, expected some of {', '.join(REDUCTIONS)}")
    return Collection(
        config.name,
        patterns,
        _names(parameters.get("tensor_names", ())),
        () if config.name in RAW else given,
        with_value or config.name in RAW,
        {mode: _save_config(config, mode, every) for mode in MODES},
    )


def _save_config(config: CollectionConfig, mode: str, every: int) -> SaveConfig:
    def given(name: str, default: Any) -> Any:
        return config.parameters.get(f"{mode.lower()}.{name}", config.parameters.get(name, default))

    try:
        end = given("end_step", None)
        return SaveConfig(
            save_interval=int(given("save_interval", every)),
            save_steps=tuple(int(each) for each in _names(given("save_steps", ()))),
            start_step=int(given("start_step", 0)),
            end_step=None if end is None else int(end),
        )
    except (TypeError, ValueError) as fault:
        raise ValueError(f"collection {config.name}: {fault}, expected whole numbers of steps") from fault


def _names(value: Any) -> "tuple[str, ...]":
    if isinstance(value, str):
        value = value.split(",")
    return tuple(str(each).strip() for each in value if str(each).strip())


def _flag(name: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"collection {name}: save_raw_tensor is {value!r}, expected True or False")
    return text == "true"


MOST_COPIED = 1024 * 1024
# Inputs and outputs of modules beyond it are reduced at once: 4 MiB of float32, on a device 32 MiB.
MOST_COPIED_ON_DEVICE = 8 * 1024 * 1024
# Lists of names that are kept sorted: one for each optimizer, and one for the parameters.
MOST_LISTS = 16

_Sorted = tuple["list[int]", "dict[tuple[str, ...], tuple[tuple[str, ...], list[int]]]"]
_SPARSE, _META, _size = attrgetter("is_sparse"), attrgetter("is_meta"), methodcaller("numel")


class Saver:
    """Chooses what is saved of a tensor by its name; a name is looked up once, and a list of names."""

    def __init__(self, collections: Iterable[Collection]) -> None:
        self._by_name = {each.name: each for each in collections}
        self._chosen: dict[tuple[str, ...], dict[str, tuple[bool, tuple[str, ...]]]] = {}
        self._sorted: dict[Any, _Sorted] = {}
        self._copies: dict[tuple[str, ...], dict[str, Any]] = {}
        self._copied = 0

    def save(
        self, batch: StepBatch, names: "tuple[str, ...]", tensors: "list[Any]", among: "tuple[str, ...]"
    ) -> "list[Reduced]":
        """Save those tensors that the collections hold which are due; return the reductions."""
        if any(map(_SPARSE, tensors)) or any(map(_META, tensors)) or not all(map(_size, tensors)):
            dense = [place for place, each in enumerate(tensors) if _is_dense(each)]
            names, tensors = tuple(names[place] for place in dense), [tensors[place] for place in dense]
        full, by_kinds = self._sort(names, among)
        for place in full:
            batch.add_full(names[place], tensors[place])
        return [
            batch.reduce(chosen, tensors if len(places) == len(tensors) else [tensors[each] for each in places], kinds)
            for kinds, (chosen, places) in by_kinds.items()
        ]

    def _sort(self, names: "tuple[str, ...]", among: "tuple[str, ...]") -> _Sorted:
        """Return places of tensors that are saved in full, and names and places of those with the same reductions."""
        found = self._sorted.get((names, among))
        if found is None:
            if len(self._sorted) >= MOST_LISTS:
                self._sorted.clear()
            choices = [self.choice(name, among) for name in names]
            by_kinds: dict[tuple[str, ...], list[int]] = {}
            for place, (_, kinds) in enumerate(choices):
                if kinds:
                    by_kinds.setdefault(kinds, []).append(place)
            found = self._sorted[names, among] = (
                [place for place, (with_value, _) in enumerate(choices) if with_value],
                {kinds: (tuple(names[each] for each in places), places) for kinds, places in by_kinds.items()},
            )
        return found

    def save_later(self, batch: StepBatch, tensors: "dict[str, Any]", among: "tuple[str, ...]") -> None:
        """Save tensors that the model goes on with: small ones are copied, and reduced together with others."""
        for name, tensor in tensors.items():
            with_value, kinds = self.choice(name, among)
            if not (with_value or kinds) or not _is_dense(tensor):
                continue
            if with_value:
                batch.add_full(name, tensor)
            if not kinds:
                continue
            size = tensor.numel()
            most = MOST_COPIED if tensor.is_cpu else MOST_COPIED_ON_DEVICE
            if size > most or name in self._copies.get(kinds, ()):
                batch.reduce((name,), [tensor], kinds)
                continue
            self._copies.setdefault(kinds, {})[name] = tensor.clone()
            self._copied += size
            if self._copied > most:
                self.reduce_copies(batch)

    def reduce_copies(self, batch: StepBatch) -> None:
        for kinds, named in self._copies.items():
            batch.reduce(tuple(named), list(named.values()), kinds)
        self.forget_copies()

    def choice(self, name: str, among: "tuple[str, ...]") -> "tuple[bool, tuple[str, ...]]":
        """Return whether a tensor is saved in full, and its reductions, by the collections that hold it."""
        chosen = self._chosen.get(among)
        if chosen is None:
            chosen = self._chosen[among] = {}
        found = chosen.get(name)
        if found is None:
            holding = [self._by_name[each] for each in among if self._by_name[each].holds(name)]
            kinds = tuple(dict.fromkeys(kind for each in holding for kind in each.reductions))
            found = chosen[name] = any(each.with_value for each in holding), kinds
        return found

    def forget_copies(self) -> None:
        self._copies = {}
        self._copied = 0


def _is_dense(tensor: Any) -> bool:
    return not (tensor.is_sparse or tensor.is_meta) and tensor.numel() > 0
