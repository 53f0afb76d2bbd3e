"""Samples the system metrics of a training job in a process of its own, for TrainGuard.

``python -m trainguard_collector -- python train.py`` does so for any command, `start` from inside a script. Without
``TRAINGUARD_OUTPUT``, ``s3://bucket/prefix`` or a folder, nothing happens.
"""

from typing import Any

from trainguard_collector.session import start

__version__ = "1.0.0"

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
# Modules of names, else that of the profiles; `start` alone imports none of them.
_ELSEWHERE = {
    "CollectionConfig": "recorder.tensors.saving",
    "Recorder": "recorder.recorder",
    **dict.fromkeys(("annotate", "annotation_begin", "annotation_end"), "annotations"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'recorder.profiles')}"), name)
