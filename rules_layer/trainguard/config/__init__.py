"""How a training job is started so that TrainGuard profiles, judges and, if wanted, stops it.

Names are those of the SageMaker Python SDK, which is not imported: launch code moves over by changing an import. `tags`
and the four functions beside it are TrainGuard's own.
"""

from trainguard.config import rule_configs
from trainguard.config.collector import CollectorArguments, collector_arguments
from trainguard.config.debugger_hook import CollectionConfig, DebuggerHookConfig, TensorBoardOutputConfig
from trainguard.config.debugger_rule import Rule
from trainguard.config.framework_profile import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    FrameworkProfile,
    HorovodProfilingConfig,
    PythonProfilingConfig,
    SMDataParallelProfilingConfig,
)
from trainguard.config.launch import (
    create_training_job_arguments,
    for_estimator,
    for_model_trainer,
    tags,
    update_training_job_arguments,
)
from trainguard.config.profiler_config import Profiler, ProfilerConfig
from trainguard.config.profiler_rule import ProfilerRule
from trainguard.config.ranges import PythonProfiler, StepRange, TimeRange, cProfileTimer

__all__ = [
    "CollectionConfig",
    "CollectorArguments",
    "DataloaderProfilingConfig",
    "DebuggerHookConfig",
    "DetailedProfilingConfig",
    "FrameworkProfile",
    "HorovodProfilingConfig",
    "Profiler",
    "ProfilerConfig",
    "ProfilerRule",
    "PythonProfiler",
    "PythonProfilingConfig",
    "Rule",
    "SMDataParallelProfilingConfig",
    "StepRange",
    "TensorBoardOutputConfig",
    "TimeRange",
    "cProfileTimer",
    "collector_arguments",
    "create_training_job_arguments",
    "for_estimator",
    "for_model_trainer",
    "rule_configs",
    "tags",
    "update_training_job_arguments",
]
