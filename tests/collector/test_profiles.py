"""The classes of the recorder's profile: they take what the launch side's take, in the same order."""

import inspect
from typing import Any

import pytest

import trainguard_collector
from trainguard import config

KINDS = [name for name in trainguard_collector.__all__ if name.endswith("ProfilingConfig")]


@pytest.mark.parametrize("name", ["FrameworkProfile", *KINDS])
def test_recorder_class_takes_the_arguments_of_the_launch_side(name: str) -> None:
    def taken(module: Any) -> list[tuple[str, Any, object]]:
        parameters = inspect.signature(getattr(module, name)).parameters.values()
        return [(each.name, each.kind, getattr(each.default, "value", each.default)) for each in parameters]

    assert taken(trainguard_collector) == taken(config)


@pytest.mark.parametrize("name", KINDS)
def test_default_profiled_step_is_the_same_on_both_sides(name: str) -> None:
    ours, theirs = getattr(trainguard_collector, name), getattr(config, name)
    assert (ours.default_start_step, ours.default_num_steps) == (theirs.default_start_step, theirs.default_num_steps)


def test_positional_arguments_mean_the_same_as_managed() -> None:
    detailed = trainguard_collector.DetailedProfilingConfig(2, 1)
    made = trainguard_collector.FrameworkProfile("/opt/x", 1_000, 30.5, 3, detailed)
    assert (made.detailed, made.loader, made.python) == (detailed, None, None)
    everything = trainguard_collector.FrameworkProfile(start_step=4)
    assert all(each is not None for each in (everything.detailed, everything.loader, everything.python))
    alone = trainguard_collector.FrameworkProfile(
        horovod_profiling_config=trainguard_collector.HorovodProfilingConfig()
    )
    assert (alone.detailed, alone.loader, alone.python) == (None, None, None)


@pytest.mark.parametrize(
    "given",
    [
        {"local_path": 7},
        {"file_max_size": 0},
        {"file_close_interval": 0.0},
        {"file_close_interval": "x"},
        {"file_open_fail_threshold": "3"},
        {"detailed_profiling_config": 5},
        {"python_profiling_config": trainguard_collector.HorovodProfilingConfig()},
    ],
)
def test_value_of_a_wrong_type_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        trainguard_collector.FrameworkProfile(**given)
