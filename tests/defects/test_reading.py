"""How a profile is read: which files and lines, in which windows, and what is lost or used twice."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.defects.readings import NEWEST, both, compatible, documented
from tests.support import small_job
from tests.support.delivery import STREAMS, Network, final_state
from tests.support.profile_folder import START, TRAIN, ProfileFolder, event, step, ticks
from tests.support.small_job import Upload, uploads
from trainguard.core.errors import EmptyProfileError
from trainguard.core.records import Status
from trainguard.local.sources import open_folder
from trainguard.managed.replay import replay

# Snapshots of a minute at the sampling interval of 5 s.
A_MINUTE = 12


@pytest.mark.defect("a lost tail")
def test_only_documented_sees_a_peak_in_the_last_minute(
    profile: ProfileFolder,
) -> None:
    times = ticks(minutes=3)
    profile.system(times, {"gpu0": np.where(times < 120.0, 50.0, 90.0), "cpu0": 30.0})
    profile.end()
    read = both(profile)
    assert read.compatible.details("OverallSystemUsage")["GPU"]["algo-1"]["max"] == 50.0
    assert read.compatible.details("MaxInitializationTime")["job_end"] == START + 116.0
    assert read.documented.details("OverallSystemUsage", "algo-1")["GPU"]["max"] == 90.0
    assert read.documented.datapoints("OverallSystemUsage") == 3 * A_MINUTE


@pytest.mark.defect("a clock of both streams")
def test_only_documented_goes_on_without_framework_events(
    profile: ProfileFolder,
) -> None:
    times = ticks(minutes=10)
    profile.system(times, {"gpu0": np.where(times < 180.0, 90.0, 20.0), "cpu0": 30.0})
    profile.timeline([step(number, 10.0 * number, 10.0) for number in range(13)])
    profile.end()
    read = both(profile, {"LowGPUUtilization": {"window": 20, "patience": 20}})
    windows = len(range(0, 13 * 10, 60))
    assert (read.compatible.replayed.windows, windows) == (3, 3)
    assert read.compatible.counts("LowGPUUtilization") == (0, 0, windows * A_MINUTE)
    assert read.documented.times_fired("LowGPUUtilization") == 1
    assert read.documented.datapoints("LowGPUUtilization") == 10 * A_MINUTE


@pytest.mark.defect("a step on an edge")
def test_compatible_counts_a_step_on_a_window_edge_twice(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(minutes=6), {"gpu0": 90.0, "cpu0": 30.0})
    across = [59, 119, 179, 239]
    profile.timeline([step(number, number + 0.15, 0.9 if number in across else 0.5) for number in range(300)])
    profile.end()
    read = both(profile)
    assert read.compatible.counts("StepOutlier")[2] == 300 + len(across)
    shown = read.compatible.details("StepOutlier")["step_details"]["algo-1-100"]
    assert shown["step_numbers"] == [str(number) for number in across for _ in range(2)]
    series = read.documented.details("StepOutlier", "algo-1")["series"][0]
    assert series["steps"] + series["steps_left_out"] == 300 - NEWEST
    assert series["number_of_outliers"] == len([number for number in across if number >= 100])


@pytest.mark.defect("a sample on an edge")
def test_compatible_doubles_a_sample_on_a_window_edge(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(minutes=4, first_s=0.0), {"gpu0": 90.0, "cpu0": 30.0, "mem": 23.0})
    profile.end()
    read = both(profile)
    assert read.compatible.details("OverallSystemUsage")["CPU memory"]["algo-1"]["max"] == 2 * 23.0
    assert read.compatible.counts("LowGPUUtilization")[2] == 3 * A_MINUTE + 3
    assert read.documented.details("OverallSystemUsage", "algo-1")["CPU memory"]["max"] == 23.0
    assert read.documented.datapoints("OverallSystemUsage") == 4 * A_MINUTE


@pytest.mark.defect("late files")
def test_documented_uses_files_110_s_late() -> None:
    objects = [upload for upload in uploads() if upload.at < small_job.START + 360.0]
    late = next(upload for upload in objects if f"{small_job.START + 120}.algo-2" in upload.key)
    in_time = delivered(objects)
    behind = delivered([upload if upload != late else replace(late, at=late.at + 110.0) for upload in objects])
    assert behind == in_time
    assert behind != delivered([upload for upload in objects if upload != late])


def delivered(objects: Sequence[Upload]) -> dict[str, object]:
    """Deliver objects as they appear, each with its message, and return the nodes' state that they leave."""
    network = Network()
    for upload in sorted(objects, key=lambda each: each.at):
        network.run_until(upload.at, batch_s=0.0)
        network.put(upload)
        network.announce(upload, upload.at)
    network.run_until(objects[-1].at + 600.0, batch_s=0.0)
    return {name: value for name, value in final_state(network.world).items() if name.endswith(STREAMS)}


@pytest.mark.defect("files parsed again")
def test_files_in_overlapping_windows_are_parsed_once(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(minutes=10), {"gpu0": 90.0, "cpu0": 30.0})
    profile.timeline([step(number, 5.0 * number + 1.0, 4.0) for number in range(120)])
    source = open_folder(str(profile.path))
    reads: Counter[str] = Counter()

    def counted(name: str) -> bytes:
        reads[name] += 1
        return source.read(name)

    assert replay(list(source.sizes), counted).windows == 9
    assert reads == Counter(list(source.sizes))
    read = documented(profile)
    assert read.counters("algo-1", "system")["lines"] == len(profile.lines("system"))
    assert read.counters("algo-1", "framework")["events"] == len(profile.lines("pevents"))


@pytest.mark.defect("environment variables")
def test_environment_variables_with_text_change_nothing(
    profile: ProfileFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile.system(ticks(minutes=4), {"gpu0": 40.0, "cpu0": 30.0})
    before = both(profile)
    for name in ("TIME_BUFFER_MICROSECONDS", "TRAILING_DURATION_MICROSECONDS"):
        monkeypatch.setenv(name, "1000000")
    after = both(profile)
    assert after.compatible == before.compatible
    assert after.documented.verdicts == before.documented.verdicts


@pytest.mark.defect("names of nodes")
def test_only_documented_reads_hosts_not_named_algo(profile: ProfileFolder) -> None:
    profile.system(ticks(minutes=3), {"gpu0": 90.0, "cpu0": 30.0})
    profile.system(ticks(minutes=3), {"gpu0": 50.0, "cpu0": 30.0}, node="trainer.local")
    read = both(profile)
    assert set(read.compatible.details("LoadBalancing")) == {"algo-1"}
    assert read.compatible.replayed.skipped["other_files"] == 3
    assert set(read.documented.details("OverallSystemUsage")) == {"algo-1", "trainer.local"}


@pytest.mark.defect("unfinished files")
def test_only_compatible_reads_unfinished_tmp_files(
    profile: ProfileFolder,
) -> None:
    times = ticks(minutes=3)
    profile.system(times, {"gpu0": np.where(times < 60.0, 90.0, 50.0), "cpu0": 30.0})
    first, second, third = sorted(profile.files)
    second.rename(f"{second}.tmp")
    read = both(profile)
    assert read.compatible.details("OverallSystemUsage")["GPU"]["algo-1"]["min"] == 50.0
    assert read.compatible.counts("LowGPUUtilization")[2] == 2 * A_MINUTE
    assert read.documented.profile.foreign == (f"{second.relative_to(profile.path).as_posix()}.tmp",)
    assert read.documented.datapoints("OverallSystemUsage") == 2 * A_MINUTE
    assert {first.exists(), third.exists()} == {True}


@pytest.mark.defect("broken lines")
def test_both_readings_count_broken_lines_and_go_on(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(minutes=4), {"gpu0": 90.0, "cpu0": 30.0})
    profile.change(f"{START + 60}.", lambda text: "{" + text + "\n")
    profile.change(f"{START + 120}.", lambda text: text.removesuffix("\n"))
    read = both(profile)
    assert read.compatible.replayed.skipped["bad_lines"] == 2
    assert read.compatible.counts("LowGPUUtilization")[2] == 3 * A_MINUTE - 1
    assert read.documented.counters("algo-1", "system")["bad_lines"] == 1
    assert read.documented.datapoints("OverallSystemUsage") == 4 * A_MINUTE


@pytest.mark.defect("a truncated trace")
def test_only_documented_uses_a_truncated_trace(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(minutes=4), {"gpu0": 90.0, "cpu0": 30.0})
    profile.timeline([step(number, 10.0 * number + 1.0, 5.0) for number in range(24)])
    second = sorted(profile.path.rglob("*_pythontimeline.json"))[1].name
    profile.change(second, lambda text: text[: text.rindex("dur")])
    read = both(profile)
    assert read.compatible.replayed.skipped["framework_files_unreadable"] == 1
    assert read.compatible.counts("MaxInitializationTime")[2] == 3 * 6 - 6
    assert read.documented.counters("algo-1", "framework")["bad_events"] == 1
    assert read.documented.details("OverallFrameworkMetrics", "algo-1")["phase"].keys() == {TRAIN, "others"}


@pytest.mark.defect("pairs of begin and end")
def test_compatible_mispairs_events_of_overlapping_threads(
    profile: ProfileFolder,
) -> None:
    def mark(kind: str, name: str, at_s: float, thread: int) -> dict[str, object]:
        return {"phase": "cpu_functions", "ph": kind, "name": name, "ts": round(at_s * 1e6), "tid": thread}

    profile.system(ticks(minutes=3), {"gpu0": 90.0, "cpu0": 30.0})
    profile.timeline(
        [mark("B", "load", 10, 1), mark("B", "copy", 15, 2), mark("E", "load", 20, 1), mark("E", "copy", 30, 2)]
    )
    profile.timeline([step(1, 110.0, 5.0)])
    read = both(profile)
    assert read.compatible.details("OverallFrameworkMetrics")["CPU_total"] == {
        "copy": (20 - 15) * 1_000_000,
        "load": (30 - 10) * 1_000_000,
    }
    assert read.documented.details("OverallFrameworkMetrics", "algo-1")["CPU_total"] == {
        "load": (20 - 10) * 1_000_000,
        "copy": (30 - 15) * 1_000_000,
    }


@pytest.mark.defect("ends without a beginning")
def test_both_readings_count_ends_without_a_beginning(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(minutes=3), {"gpu0": 90.0, "cpu0": 30.0})
    lone = {"phase": "cpu_functions", "ph": "E", "name": "load", "ts": 20_000_000, "tid": 1}
    profile.timeline([lone, event("cpu_functions", "copy", 30.0, 10.0), step(1, 110.0, 5.0)])
    read = both(profile)
    assert read.compatible.replayed.skipped["ends_without_begin"] == read.compatible.replayed.windows
    assert read.documented.counters("algo-1", "framework")["unpaired_events"] == 1
    totals = [
        read.compatible.details("OverallFrameworkMetrics")["CPU_total"],
        read.documented.details("OverallFrameworkMetrics", "algo-1")["CPU_total"],
    ]
    assert totals == [{"copy": 10_000_000}] * 2


@pytest.mark.defect("framework files alone")
def test_compatible_refuses_framework_files_alone(
    profile: ProfileFolder,
) -> None:
    profile.timeline([step(number, 0.5 * number + 0.1, 0.4) for number in range(300)])
    with pytest.raises(EmptyProfileError):
        compatible(profile)
    read = documented(profile)
    assert read.status("StepOutlier") is Status.OK
    assert read.datapoints("StepOutlier") == 300 - 100
    assert read.status("LowGPUUtilization") is Status.NOT_APPLICABLE


@pytest.mark.defect("times of TensorFlow traces")
def test_compatible_shifts_the_second_tensorflow_worker(
    profile: ProfileFolder,
) -> None:
    for node, at_s in (("algo-1", 30.0), ("algo-2", 90.0)):
        profile.system(ticks(minutes=4), {"gpu0": 90.0, "cpu0": 30.0}, node=node)
        profile.tensorflow([event("/host:CPU", "MatMul", 1.0, 2.0)], (at_s, at_s + 5.0), node=node)
    read = both(profile)
    assert read.compatible.replayed.through_us == (START + 60) * 1_000_000
    assert read.compatible.details("OverallFrameworkMetrics")["CPU_total"] == {"MatMul": 2 * 2_000_000}
    assert read.documented.watermark_s("algo-1", "framework") == START + 35.0
    assert read.documented.watermark_s("algo-2", "framework") == START + 95.0


@pytest.mark.defect("TensorFlow traces without metadata")
def test_compatible_dates_tensorflow_without_metadata_to_1970(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(minutes=4), {"gpu0": 90.0, "cpu0": 30.0})
    profile.tensorflow([event("/host:CPU", "MatMul", 1.0, 2.0)], (0.0, 0.0), node="algo-1", metadata=False)
    read = both(profile)
    assert "CPU" not in read.compatible.details("OverallFrameworkMetrics")
    assert read.compatible.replayed.skipped.total() == 0
    assert {key.stream for key in read.documented.records} == {"system", "job"}
    assert read.documented.status("OverallFrameworkMetrics") is Status.NOT_APPLICABLE
