"""Framework events are written and rotated as the hook of a training framework does it."""

import json

import numpy as np

from demo.samples import ProcessTimeline
from demo.timelines import timeline_files
from demo.workload import LOADER_STARTS, PHASES, TRAIN

START = 1_784_021_040
REAL_FILE = """[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1784021050000000}},
{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}},
{"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},
{"name": "Step:ModeKeys.TRAIN", "pid": 1, "ph": "X", "ts": 11993413, "dur": 87137, \
"args": {"pid": 905, "step_num": "1"}},
{"name": "Step:ModeKeys.TRAIN", "pid": 1, "ph": "X", "ts": 12081597, "dur": 83633, \
"args": {"pid": 905, "step_num": "2"}}
]
"""


def process(starts_s: list[float], durations_s: list[float], *, loader: tuple[int, ...] = ()) -> ProcessTimeline:
    """Return a process that opened its file 10 s after the start; events number ``loader`` start a data loader."""
    count = len(starts_s)
    is_loader = np.isin(np.arange(count), loader)
    return ProcessTimeline(
        node=0,
        pid=905,
        opened_us=10_000_000,
        starts_us=np.rint(np.array(starts_s) * 1e6).astype(np.int64),
        durations_us=np.rint(np.array(durations_s) * 1e6).astype(np.int32),
        phases=np.where(is_loader, PHASES.index(LOADER_STARTS), PHASES.index(TRAIN)).astype(np.uint8),
        steps=np.where(is_loader, -1, np.arange(1, count + 1)).astype(np.int32),
    )


def steps_of(body: bytes) -> list[str]:
    return [event["args"]["step_num"] for event in json.loads(body) if event["ph"] == "X"]


def test_two_steps_make_the_file_of_the_real_hook() -> None:
    steps = process([21.993413, 22.081597], [0.087137, 0.083633])

    (file,) = timeline_files(steps, PHASES, start=START, closed_us=30_000_000)

    assert file.body.decode() == REAL_FILE
    assert file.last_end_us == START * 1_000_000 + 22_165_230
    assert file.closed_us == (START + 30) * 1_000_000


def test_step_over_a_minute_after_closing_begins_a_new_file() -> None:
    ends_s = [20.0, 69.9, 70.0, 70.1, 130.0, 130.2]
    steps = process([end - 0.05 for end in ends_s], [0.05] * 6)

    files = list(timeline_files(steps, PHASES, start=START, closed_us=200_000_000))

    assert [steps_of(file.body) for file in files] == [["1", "2", "3"], ["4", "5"], ["6"]]
    assert [file.last_end_us - START * 1_000_000 for file in files] == [70_000_000, 130_000_000, 130_200_000]
    assert [file.closed_us - START * 1_000_000 for file in files] == [70_100_000, 130_200_000, 200_000_000]


def test_file_of_a_silent_process_stays_open_until_its_next_step() -> None:
    steps = process([20.0, 400.0], [1.0, 1.0])

    first, _ = timeline_files(steps, PHASES, start=START, closed_us=500_000_000)

    assert first.last_end_us == (START + 21) * 1_000_000
    assert first.closed_us == (START + 401) * 1_000_000


def test_large_file_is_rotated_by_size_at_the_next_event() -> None:
    steps = process([20 + 0.01 * k for k in range(100)], [0.005] * 100)

    files = list(timeline_files(steps, PHASES, start=START, closed_us=60_000_000, max_bytes=2_000))

    assert [int(number) for file in files for number in steps_of(file.body)] == list(range(1, 101))
    assert len(files) > 4
    assert all(2_000 < len(file.body) < 2_400 for file in files[:-1])


def test_rotated_files_name_their_own_phases_with_fixed_numbers() -> None:
    events = process([20.0, 21.0, 90.0], [0.5, 0.4, 0.4], loader=(0,))

    files = [json.loads(file.body) for file in timeline_files(events, PHASES, start=START, closed_us=95_000_000)]

    names = [{e["pid"]: e["args"].get("name") for e in file if e["name"] == "process_name"} for file in files]
    assert names == [
        {0: None, 1: "DataLoaderIterInitialize", 2: "Step:ModeKeys.TRAIN"},
        {0: None, 2: "Step:ModeKeys.TRAIN"},
    ]


def test_event_outside_steps_has_arguments_and_no_step_number() -> None:
    (file,) = timeline_files(process([20.0], [0.5], loader=(0,)), PHASES, start=START, closed_us=30_000_000)

    assert json.loads(file.body)[-1]["args"] == {"pid": 905, "num_workers": 8, "pin_memory": True}


def test_process_without_events_leaves_no_file() -> None:
    assert list(timeline_files(process([], []), PHASES, start=START, closed_us=30_000_000)) == []
