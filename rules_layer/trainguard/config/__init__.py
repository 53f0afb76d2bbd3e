"""How a training job is started so that TrainGuard profiles, judges and, if wanted, stops it.

Names are those of the SageMaker Python SDK, which is not imported: launch code moves over by changing an import. `tags`
and the four functions beside it are TrainGuard's own.
"""

from trainguard.config import rule_configs
from trainguard.config.collector import CollectorArguments, collector_arguments
from trainguard.config.debugger_hook import CollectionConfig, DebuggerHookConfig, TensorBoardOutputConfig
from trainguard.config.framework_profile import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    FrameworkProfile,
    HorovodProfilingConfig,
    PythonProfiler,
    PythonProfilingConfig,
    SMDataParallelProfilingConfig,
    StepRange,
    TimeRange,
    cProfileTimer,
)
from trainguard.config.job_rules import ProfilerRule, Rule
from trainguard.config.launch import (
    create_training_job_arguments,
    for_estimator,
    for_model_trainer,
    tags,
    update_training_job_arguments,
)
from trainguard.config.profiler_config import Profiler, ProfilerConfig

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
