"""Which tensors a training job saves, and where: what the SageMaker Python SDK configures for the Debugger hook."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainguard.config.profiler_config import check_place
from trainguard.core.errors import LaunchConfigError

LONGEST_NAME = 256
# What CreateTrainingJob takes.
MOST_COLLECTIONS, MOST_PARAMETERS = 20, 20

_STEPS = ("save_interval", "save_steps", "start_step", "end_step")
_MODES = ("", "train.", "eval.", "predict.", "global.")
COLLECTION_PARAMETERS = (
    "include_regex",
    "tensor_names",
    "reductions",
    "save_histogram",
    "save_raw_tensor",
    "save_shape",
    *(f"{mode}{name}" for mode in _MODES for name in _STEPS),
)

_WHOLE = re.compile(r"\d+", re.ASCII)
_LIST = re.compile(r"\d+(\s*,\s*\d+)*", re.ASCII)


class CollectionConfig:
    """Tensors that are saved together; ``name`` is one of the hook's own (``losses``, ``weights``, …) or another.

    ``parameters`` are `COLLECTION_PARAMETERS`; steps may be given by mode, as ``train.save_interval``. Raises
    LaunchConfigError when the name has not 1 to 256 characters, a parameter is unknown, or a value cannot be used.
    """

    def __init__(self, name: str, parameters: Mapping[str, object] | None = None) -> None:
        where = "CollectionConfig"
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            raise LaunchConfigError(where, "name", name, f"a text of 1 to {LONGEST_NAME} characters")
        self.name = name
        self.parameters = texts(f"{where} {name}", "parameters", parameters)
        for parameter, text in self.parameters.items():
            _check(f"{where} {name}", parameter, text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CollectionConfig):
            return NotImplemented
        return (self.name, self.parameters) == (other.name, other.parameters)

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.parameters.items()))))

    def __repr__(self) -> str:
        return f"CollectionConfig({self.name!r}, {self.parameters!r})"

    def to_request_dict(self) -> dict[str, Any]:
        """Return an entry of ``CollectionConfigurations`` of CreateTrainingJob."""
        request: dict[str, Any] = {"CollectionName": self.name}
        return request | {"CollectionParameters": dict(self.parameters)} if self.parameters else request

    _to_request_dict = to_request_dict


class DebuggerHookConfig:
    """What the hook in the training container saves, below ``<s3_output_path>/<job>/debug-output/``.

    For TrainGuard the path lies below the bucket of the stack's output ProfilerOutputUri; an estimator takes its own
    ``output_path`` for none. ``hook_parameters`` are such as ``save_interval`` and ``include_workers``. Raises
    LaunchConfigError when a value is none of its kind, or there are more than CreateTrainingJob takes.
    """

    def __init__(
        self,
        s3_output_path: str | None = None,
        container_local_output_path: str | None = None,
        hook_parameters: Mapping[str, object] | None = None,
        collection_configs: Sequence[CollectionConfig] | None = None,
    ) -> None:
        where = "DebuggerHookConfig"
        check_place(where, s3_output_path)
        configs = list(collection_configs or ())
        for config in configs:
            if not isinstance(config, CollectionConfig):
                raise LaunchConfigError(where, "collection_configs", config, "a CollectionConfig")
        check_collections(where, configs)
        self.s3_output_path = s3_output_path
        self.container_local_output_path = container_local_output_path
        self.hook_parameters = texts(where, "hook_parameters", hook_parameters)
        self.collection_configs: list[CollectionConfig] = configs

    def to_request_dict(self) -> dict[str, Any]:
        """Return ``DebugHookConfig`` of CreateTrainingJob."""
        optional = {
            "S3OutputPath": self.s3_output_path,
            "LocalPath": self.container_local_output_path,
            "HookParameters": dict(self.hook_parameters),
            "CollectionConfigurations": [config.to_request_dict() for config in self.collection_configs],
        }
        return {name: value for name, value in optional.items() if value}

    _to_request_dict = to_request_dict

    def with_collections(self, configs: Sequence[CollectionConfig]) -> "DebuggerHookConfig":
        """Return the configuration with further collections; one of the same name that the user gave stays."""
        named = {config.name for config in self.collection_configs}
        added = {config.name: config for config in configs if config.name not in named}
        return DebuggerHookConfig(
            self.s3_output_path,
            self.container_local_output_path,
            self.hook_parameters,
            [*self.collection_configs, *added.values()],
        )


class TensorBoardOutputConfig:
    """Where TensorBoard files go: ``<s3_output_path>/<job>/tensorboard-output/``; raises LaunchConfigError."""

    def __init__(self, s3_output_path: str, container_local_output_path: str | None = None) -> None:
        where = "TensorBoardOutputConfig"
        if s3_output_path is None:
            raise LaunchConfigError(where, "s3_output_path", None, "s3://bucket/prefix")
        check_place(where, s3_output_path)
        self.s3_output_path = s3_output_path
        self.container_local_output_path = container_local_output_path

    def to_request_dict(self) -> dict[str, Any]:
        """Return ``TensorBoardOutputConfig`` of CreateTrainingJob."""
        request = {"S3OutputPath": self.s3_output_path}
        local = self.container_local_output_path
        return request if local is None else request | {"LocalPath": local}

    _to_request_dict = to_request_dict


def check_collections(where: str, configs: Sequence[CollectionConfig]) -> None:
    """Raise LaunchConfigError when a name is there twice, or there are more than CreateTrainingJob takes."""
    names = [config.name for config in configs]
    if len(names) > MOST_COLLECTIONS:
        raise LaunchConfigError(where, "collection_configs", len(names), f"at most {MOST_COLLECTIONS} collections")
    for name in names:
        if names.count(name) > 1:
            raise LaunchConfigError(where, "collection_configs", name, "each collection once")


def texts(where: str, field: str, given: Mapping[str, object] | None) -> dict[str, str]:
    """Return parameters as text, as CreateTrainingJob takes them; raises LaunchConfigError."""
    written: dict[str, str] = {}
    if not isinstance(given, Mapping | None):
        raise LaunchConfigError(where, field, given, "a mapping of names to values")
    for name, value in (given or {}).items():
        if not isinstance(value, str | int | float | bool):
            raise LaunchConfigError(where, f"{field} {name}", value, "a text, a number, True or False")
        written[name] = str(value)
    if len(written) > MOST_PARAMETERS:
        raise LaunchConfigError(where, field, len(written), f"at most {MOST_PARAMETERS} parameters")
    return written


def _check(where: str, parameter: str, text: str) -> None:
    if parameter not in COLLECTION_PARAMETERS:
        raise LaunchConfigError(where, parameter, text, f"one of the parameters {', '.join(COLLECTION_PARAMETERS)}")
    if parameter == "include_regex":
        try:
            re.compile(text)
        except re.error as fault:
            raise LaunchConfigError(where, parameter, text, "a regular expression") from fault
    name = parameter.rpartition(".")[2]
    if name in {"save_interval", "start_step", "end_step"} and not _WHOLE.fullmatch(text.strip()):
        raise LaunchConfigError(where, parameter, text, "a whole number from 0")
    if name == "save_steps" and not _LIST.fullmatch(text.strip()):
        raise LaunchConfigError(where, parameter, text, "whole numbers parted by commas")
