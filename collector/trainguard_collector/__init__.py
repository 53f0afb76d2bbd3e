"""Samples the system metrics of a training job in a process of its own, for TrainGuard.

``python -m trainguard_collector -- python train.py`` does so for any command, `start` from inside a script. Without
``TRAINGUARD_OUTPUT``, ``s3://bucket/prefix`` or a folder, nothing happens.
"""

from typing import Any

from trainguard_collector.session import start

__all__ = [
    "CollectionConfig",
    "DataloaderProfilingConfig",
    "DetailedProfilingConfig",
    "FrameworkProfile",
    "HorovodProfilingConfig",
    "KernelProfile",
    "PythonProfiler",
    "PythonProfilingConfig",
    "Recorder",
    "SMDataParallelProfilingConfig",
    "StepRange",
    "TimeRange",
    "annotate",
    "annotation_begin",
    "annotation_end",
    "cProfileTimer",
    "start",
]
__version__ = "1.0.0"

_PROFILES = "trainguard_collector.recorder.profiles"
_LAZY = {
    "annotate": "trainguard_collector.annotations",
    "annotation_begin": "trainguard_collector.annotations",
    "annotation_end": "trainguard_collector.annotations",
    "CollectionConfig": "trainguard_collector.recorder.tensors.saving",
    "DataloaderProfilingConfig": _PROFILES,
    "DetailedProfilingConfig": _PROFILES,
    "FrameworkProfile": _PROFILES,
    "HorovodProfilingConfig": _PROFILES,
    "KernelProfile": _PROFILES,
    "PythonProfiler": _PROFILES,
    "PythonProfilingConfig": _PROFILES,
    "Recorder": "trainguard_collector.recorder.recorder",
    "SMDataParallelProfilingConfig": _PROFILES,
    "StepRange": _PROFILES,
    "TimeRange": _PROFILES,
    "cProfileTimer": _PROFILES,
}
"""`start` alone imports none of them."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
