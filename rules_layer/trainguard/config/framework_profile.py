"""Which framework metrics a training job writes, and how it writes them."""

from trainguard.config.checks import check_positive, check_whole_number
from trainguard.config.metrics_config import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    HorovodProfilingConfig,
    MetricsConfig,
    PythonProfilingConfig,
    SMDataParallelProfilingConfig,
)
from trainguard.config.ranges import RangeFields
from trainguard.core.errors import LaunchConfigError

_WHERE = "FrameworkProfile"
_ALL: tuple[type[MetricsConfig], ...] = (
    DetailedProfilingConfig,
    DataloaderProfilingConfig,
    PythonProfilingConfig,
    HorovodProfilingConfig,
    SMDataParallelProfilingConfig,
)


class FrameworkProfile:
    """Framework metrics: the configurations that are given, else all of them, in the range that is given or their own.

    A file is closed after ``file_max_size`` bytes or ``file_close_interval`` seconds; ``file_open_fail_threshold``
    counts attempts to open it. A range is ignored where a configuration is given, as the SDK documents.
    ``profiling_parameters`` are those of CreateTrainingJob. Raises LaunchConfigError for a value of a wrong kind, or a
    range of both steps and times.
    """

    def __init__(  # noqa: PLR0913, PLR0917 -- the parameters that launch code passes
        self,
        local_path: str = "/opt/ml/output/profiler",
        file_max_size: int = 10_485_760,
        file_close_interval: float = 60,
        file_open_fail_threshold: int = 50,
        detailed_profiling_config: DetailedProfilingConfig | None = None,
        dataloader_profiling_config: DataloaderProfilingConfig | None = None,
        python_profiling_config: PythonProfilingConfig | None = None,
        horovod_profiling_config: HorovodProfilingConfig | None = None,
        smdataparallel_profiling_config: SMDataParallelProfilingConfig | None = None,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
    ) -> None:
        if not isinstance(local_path, str):
            raise LaunchConfigError(_WHERE, "local_path", local_path, "a path as text")
        check_whole_number(_WHERE, "file_max_size", file_max_size, 1)
        check_positive(_WHERE, "file_close_interval", file_close_interval)
        check_whole_number(_WHERE, "file_open_fail_threshold", file_open_fail_threshold, 1)
        given = (
            detailed_profiling_config,
            dataloader_profiling_config,
            python_profiling_config,
            horovod_profiling_config,
            smdataparallel_profiling_config,
        )
        fields = RangeFields(start_step, num_steps, start_unix_time, duration)
        self.profiling_parameters: dict[str, str] = {
            "LocalPath": local_path,
            "RotateMaxFileSizeInBytes": str(file_max_size),
            "RotateFileCloseIntervalInSeconds": str(file_close_interval),
            "FileOpenFailThreshold": str(file_open_fail_threshold),
            **{config.name: config.to_json_string() for config in _configs(given, fields)},
        }


def _configs(given: tuple[MetricsConfig | None, ...], fields: RangeFields) -> list[MetricsConfig]:
    fields.resolve(_WHERE)
    for kind, config in zip(_ALL, given, strict=True):
        if config is not None and not isinstance(config, kind):
            raise LaunchConfigError(_WHERE, kind.name, config, f"a {kind.__name__}")
    if chosen := [config for config in given if config is not None]:
        return chosen
    if fields.given:
        return [kind(fields.start_step, fields.num_steps, fields.start_unix_time, fields.duration) for kind in _ALL]
    return [kind(profile_default_steps=True) for kind in _ALL]
