"""How a training job is started so that TrainGuard profiles, judges and, if wanted, stops it.

The names are those of the SageMaker Python SDK, so that launch code moves over by changing an import; that SDK itself
is not imported. What is TrainGuard's own is `tags` and the four functions beside it.
"""

from typing import NoReturn

from trainguard.config import rule_configs
from trainguard.config.framework_profile import FrameworkProfile
from trainguard.config.launch import (
    create_training_job_arguments,
    for_estimator,
    for_model_trainer,
    tags,
    update_training_job_arguments,
)
from trainguard.config.metrics_config import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    HorovodProfilingConfig,
    PythonProfilingConfig,
    SMDataParallelProfilingConfig,
)
from trainguard.config.profiler_config import Profiler, ProfilerConfig
from trainguard.config.profiler_rule import ProfilerRule
from trainguard.config.ranges import PythonProfiler, StepRange, TimeRange, cProfileTimer

__all__ = [
    "DataloaderProfilingConfig",
    "DetailedProfilingConfig",
    "FrameworkProfile",
    "HorovodProfilingConfig",
    "Profiler",
    "ProfilerConfig",
    "ProfilerRule",
    "PythonProfiler",
    "PythonProfilingConfig",
    "SMDataParallelProfilingConfig",
    "StepRange",
    "TimeRange",
    "cProfileTimer",
    "create_training_job_arguments",
    "for_estimator",
    "for_model_trainer",
    "rule_configs",
    "tags",
    "update_training_job_arguments",
]

_OF_TENSORS = frozenset({"CollectionConfig", "DebuggerHookConfig", "Rule", "TensorBoardOutputConfig"})


def __getattr__(name: str) -> NoReturn:
    """Say what to do where launch code imports what the SageMaker SDK has for tensors."""
    if name in _OF_TENSORS:
        raise ImportError(
            f"trainguard.config has no {name}: rules on tensors are not evaluated yet. "
            "Use ProfilerRule for rules on profiles, and leave the others out of the launch code, "
            f"or keep importing {name} from sagemaker.debugger."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
