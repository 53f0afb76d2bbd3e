"""Samples of nvidia-smi in the queries that people use, and what a lost GPU or a broken line costs."""

from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.runs.nvidia_smi import FAILED, NO_TIME, is_nvidia_smi, read_nvidia_smi
from trainguard.formats.runs.run import SeriesName, SourceRun, gpu_series

UTILIZATION, MEMORY, POWER = "GPUUtilization", "MemoryUsedBytes", "PowerWatts"
HEADER = "timestamp, index, utilization.gpu [%], utilization.memory [%], memory.used [MiB], power.draw [W]\n"
GPUS = 2
UUIDS = ["GPU-1b2c3d4e-0000-0000-0000-000000000000", "GPU-0a2c3d4e-0000-0000-0000-000000000000"]
BUSES = ["00000000:17:00.0", "00000000:CA:00.0"]


def lines(form: str, count: int = 6) -> list[str]:
    """Return a line of each GPU every 5 s; ``form`` holds time, index, uuid, bus, use and memory."""
    return [
        form.format(
            time=f"2026/01/15 08:00:{5 * number:02d}.{100 + device:03d}",
            index=device,
            uuid=UUIDS[device],
            bus=BUSES[device],
            use=10 * device + number,
            used=1024 * (device + 1),
        )
        + "\n"
        for number in range(count)
        for device in range(GPUS)
    ]


def read(text: str) -> SourceRun:
    assert is_nvidia_smi(text)
    return read_nvidia_smi("smi.csv", text.splitlines(keepends=True), "smi")


def values(run: SourceRun, measure: str = UTILIZATION) -> list[Mapping[str, float]]:
    found = [gpu_series(f"gpu{device}", measure) for device in range(GPUS)]
    return [
        {name.name: snapshot.values[name] for name in found if name in snapshot.values}
        for snapshots in run.snapshots.values()
        for snapshot in snapshots
    ]


EXPECTED = [{"gpu0": float(number), "gpu1": 10.0 + number} for number in range(6)]
FORMS = {
    "usual": (HEADER, "{time}, {index}, {use} %, 3 %, {used} MiB, 250.10 W"),
    "nounits": (HEADER, "{time}, {index}, {use}, 3, {used}, 250.10"),
    "noheader": ("", "{time}, {index}, {use} %, 3 %, {used} MiB, 250.10 W"),
    "noheader by bus": ("", "{time}, NVIDIA A100-SXM4-80GB, {bus}, {use} %, 3 %, 81920 MiB, {used} MiB"),
    "by uuid": (HEADER.replace("index", "gpu_uuid"), "{time}, {uuid}, {use} %, 3 %, {used} MiB, [N/A]"),
    "no index": (
        HEADER.replace(" index,", " name,"),
        "{time}, NVIDIA A100, {use} %, [Not Supported], {used} MiB, [N/A]",
    ),
    "noheader, no index": ("", "{time}, NVIDIA A100, P0, {use} %, 3 %, {used} MiB, 250.1 W"),
    "own names": ("timestamp,index,utilization.gpu,memory.used\n", "{time},{index},{use},{used}"),
    "reordered": ("index, utilization.gpu [%], memory.used [MiB], timestamp\n", "{index}, {use} %, {used} MiB, {time}"),
}


@pytest.mark.parametrize("form", FORMS)
def test_usual_queries_give_each_gpu_its_samples(form: str) -> None:
    header, line = FORMS[form]
    run = read(header + "".join(lines(line)))
    assert values(run) == EXPECTED
    assert values(run, f"{MEMORY}")[0] == {"gpu0.MemoryUsedBytes": 2.0**30, "gpu1.MemoryUsedBytes": 2.0**31}
    assert run.bad == {}


def test_one_gpu_without_index_is_one_gpu() -> None:
    body = "".join(f"2026/01/15 08:00:{second:02d}.100, {second} %, 3 %\n" for second in range(20))
    run = read("timestamp, utilization.gpu [%], utilization.memory [%]\n" + body)
    assert values(run) == [{"gpu0": float(second)} for second in range(20)]


def test_repeated_and_changed_headers_are_followed() -> None:
    line = FORMS["usual"][1]
    more = "timestamp, utilization.gpu [%], index\n"
    later = "2026/01/15 08:01:00.100, 70 %, 0\n2026/01/15 08:01:00.101, 80 %, 1\n"
    run = read(HEADER + "".join(lines(line, 3)) + HEADER + "".join(lines(line)[6:]) + more + later)
    assert values(run) == [*EXPECTED, {"gpu0": 70.0, "gpu1": 80.0}]
    assert run.bad == {}


@pytest.mark.parametrize("said", ["[GPU is lost]", "[GPU requires reset]"])
def test_lost_gpu_is_the_fault_that_it_is(said: str) -> None:
    broken = f"2026/01/15 08:00:30.101, 1, {said}, {said}, {said}, {said}\n"
    run = read(
        HEADER + "".join(lines(FORMS["usual"][1])) + "2026/01/15 08:00:30.100, 0, 6 %, 3 %, 9 MiB, 1 W\n" + broken
    )
    [snapshots] = run.snapshots.values()
    assert snapshots[-1].values[SeriesName("gpu", "gpu1.Lost")] == 1.0
    assert run.notes == ["nvidia-smi says from 2026-01-15 08:00:30 on that gpu1 is lost."]
    assert run.bad == {}


def test_failures_are_counted_and_cost_themselves() -> None:
    broken = [
        "Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error\n",
        "2026/01/15 08:00:30.101, 1, ERR!, 3 %, [Unknown Error], 250.1 W\n",
        "yesterday, 0, 5 %, 3 %, 9 MiB, 1 W\n",
    ]
    run = read(HEADER + "".join(lines(FORMS["usual"][1])) + "".join(broken))
    assert run.bad == {FAILED: 3, NO_TIME: 1}
    assert values(run)[:6] == EXPECTED


def test_dmon_with_times_is_read() -> None:
    head = (
        "#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec     fb\n"
        "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %      %     MB\n"
    )
    body = "".join(
        f" 20260115   08:00:{second:02d}      {device}   70   48   -   {second}   1   0   0   {device + 1}\n"
        for second in range(6)
        for device in range(GPUS)
    )
    run = read(head + body + head)
    assert values(run) == [{"gpu0": float(second), "gpu1": float(second)} for second in range(6)]
    assert values(run, MEMORY)[0] == {"gpu0.MemoryUsedBytes": 2.0**20, "gpu1.MemoryUsedBytes": 2.0**21}
    assert run.bad == {}


@pytest.mark.parametrize(
    "text",
    [
        "index, utilization.gpu [%], memory.used [MiB]\n0, 5 %, 7 MiB\n",
        "# gpu   pwr gtemp    sm   mem\n# Idx     W     C     %     %\n    0    70    48     5     1\n",
    ],
)
def test_samples_without_times_say_how_to_record_them(text: str) -> None:
    assert is_nvidia_smi(text)
    with pytest.raises(TelemetryFormatError, match=r"no column timestamp .* expected nvidia-smi --query-gpu=timestamp"):
        read_nvidia_smi("smi.csv", text.splitlines(keepends=True), "smi")


@given(st.text(max_size=200), st.integers(0, 400), st.sampled_from(sorted(FORMS)))
def test_no_text_ends_the_reading(damage: str, at: int, form: str) -> None:
    header, line = FORMS[form]
    text = header + "".join(lines(line, 3))
    text = text[:at] + damage + text[at:]
    if is_nvidia_smi(text):
        with suppress(TelemetryFormatError):
            read_nvidia_smi("smi.csv", text.splitlines(keepends=True), "smi")


def test_uuid_goes_before_an_index_that_changes() -> None:
    header = HEADER.replace("index,", "index, uuid,")
    rows = "".join(
        f"2026/01/15 08:00:{5 * number:02d}.100, {device if number < 3 else 1 - device}, {UUIDS[device]}, "
        f"{10 * device + number} %, 3 %, 1024 MiB, 250 W\n"
        for number in range(6)
        for device in range(GPUS)
    )
    assert values(read(header + rows)) == EXPECTED


def test_same_index_on_two_hosts_is_two_gpus() -> None:
    header = HEADER.replace("index,", "index, uuid,")
    rows = "".join(
        f"2026/01/15 08:00:{5 * number:02d}.100, 0, {UUIDS[device]}, {10 * device + number} %, 3 %, 1024 MiB, 250 W\n"
        for number in range(6)
        for device in range(GPUS)
    )
    assert values(read(header + rows)) == EXPECTED


@pytest.mark.parametrize("line", ["{time}, {index}, {use}, 3, {used}, 250.10", "{time}, NVIDIA A100, {uuid}, {use}"])
def test_query_without_header_and_units_is_named(line: str) -> None:
    text = "".join(lines(line))
    assert is_nvidia_smi(text)
    with pytest.raises(TelemetryFormatError, match=r"which of its \d columns .* expected nvidia-smi --query-gpu="):
        read_nvidia_smi("smi.csv", text.splitlines(keepends=True), "smi")


def test_table_of_other_numbers_is_none() -> None:
    assert not is_nvidia_smi("2026/01/15 08:00:00.100, epoch one, 0.5\n")
    assert not is_nvidia_smi("2026-01-15 08:00:00, 1, 0.5\n")
