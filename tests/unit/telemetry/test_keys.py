"""The key grammar decides which objects are profile objects, whatever an event pattern lets through."""

from typing import Any

import pytest

from trainguard.core.errors import UnreadableKeyError
from trainguard.core.layout import EndKey, ProfileRoot, parse_job_file_key
from trainguard.formats.profile.keys import FrameworkKey, SystemKey, TraceKey, parse_key, parse_trace_key, system_key

SYSTEM = "team-a/runs/bert-large-1/profiler-output/system/incremental/2026112108/1795248000.algo-12.json"
FRAMEWORK = "bert/profiler-output/framework/pevents/2026112108/1795248012345678_905-algo-3_pythontimeline.json"


def test_system_key_has_job_node_and_minute() -> None:
    assert parse_key(SYSTEM) == SystemKey(ProfileRoot("team-a/runs/", "bert-large-1"), "algo-12", 1795248000)


def test_framework_key_has_a_lane_of_process_and_kind() -> None:
    parsed = parse_key(FRAMEWORK)
    assert isinstance(parsed, FrameworkKey)
    assert (parsed.node, parsed.process, parsed.end_us, parsed.partition) == (
        "algo-3",
        "905",
        1795248012345678,
        "905/pythontimeline",
    )


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("1593673051473228_88359-8c859046be41.ant.example.com_horovod_timeline", "8c859046be41.ant.example.com"),
        ("1590461139923994_0001_model_timeline", "0001"),
        ("1589930991000000_4487_0000_pythontimeline", "4487"),
    ],
)
def test_hosts_other_than_algo_are_nodes_too(name: Any, node: Any) -> None:
    parsed = parse_key(f"job/profiler-output/framework/pevents/2020070206/{name}.json")
    assert isinstance(parsed, FrameworkKey)
    assert parsed.node == node


def test_given_the_end_marker_when_parsed_then_it_ends_a_stream() -> None:
    assert parse_key("j/profiler-output/system/training_job_end.ts") == EndKey(ProfileRoot("", "j"), "system")


STEP_FOLDER = "job/profiler-output/framework/tensorflow/detailed_profiling/2020080513/000000017/"


@pytest.mark.parametrize(
    ("name", "node", "process"),
    [
        ("80807-algo-2", "algo-2", "80807"),
        ("algo-2", "algo-2", "trace"),
        ("8c859046be41.ant.example.com", "8c859046be41.ant.example.com", "trace"),
    ],
)
def test_tensorflow_metadata_key_represents_its_trace(name: str, node: str, process: str) -> None:
    parsed = parse_key(f"{STEP_FOLDER}{name}_1596659864545103_1596659864854168.metadata")

    assert parsed == FrameworkKey(
        ProfileRoot("", "job"), node, process, "tf_trace", 1_596_659_864_854_168, 1_596_659_864_545_103
    )
    assert parsed.partition == f"{process}/tf_trace"


def test_tensorflow_trace_key_has_run_and_host() -> None:
    key = f"{STEP_FOLDER}plugins/profile/2020_08_05_21_37_44/algo-2.trace.json.gz"

    assert parse_trace_key(key) == TraceKey("2020_08_05_21_37_44", "algo-2", STEP_FOLDER, key)
    assert parse_trace_key(key.removesuffix(".gz")) is None
    assert parse_trace_key(key.replace("job/", "/" * 1_100)) is None


@pytest.mark.parametrize(
    "name",
    [
        "algo-2_1596659864854168_1596659864545103.metadata",
        "algo-2_1396659864545103_1596659864854168.metadata",
        "algo-2_1596659864545103.metadata",
        "a_b_1596659864545103_1596659864854168.metadata",
        "../algo-2_1596659864545103_1596659864854168.metadata",
        "plugins/profile/2020_08_05_21_37_44/algo-2.trace.json.gz",
    ],
)
def test_metadata_key_without_usable_times_is_refused(name: str) -> None:
    with pytest.raises(UnreadableKeyError):
        parse_key(f"{STEP_FOLDER}{name}")


@pytest.mark.parametrize(
    "key",
    [
        "job/rule-output/ProfilerReport-1633804976/profiler-output/system/incremental/2026112108/1795248000.algo-1.json",
        "rule-output/ProfilerReport-1/profiler-output/system/incremental/2026112108/1795248000.algo-1.json",
        "job/profiler-output/system/incremental/2026112108/1795248000.algo-1.json.tmp",
        "job/profiler-output/system/incremental/2026112108/0000000000.algo-1.json",
        "job/profiler-output/system/incremental/2026112108/17952480000.algo-1.json",
        "job/profiler-output/system/incremental/1795248000.algo-1.json",
        "job/profiler-output/system/incremental/2026112108/1795248000..json",
        "job/profiler-output/system/incremental/2026112108/1795248000.algo-1;drop.json",
        "-job/profiler-output/system/incremental/2026112108/1795248000.algo-1.json",
        "a" * 64 + "/profiler-output/system/incremental/2026112108/1795248000.algo-1.json",
        "job/../profiler-output/system/incremental/2026112108/1795248000.algo-1.json",
        "job/profiler-output/framework/pevents/2026112108/1795248012_905-algo-3_pythontimeline.json",
        "job/profiler-output/framework/905-algo-3_pythontimeline.tmp",
        "job/profiler-output/system/incremental/2026112108/1795248000.algo-1.json\n",
        "profiler-output/system/incremental/2026112108/1795248000.algo-1.json",
        f"x\n\nURGENT: sign in/{SYSTEM}",
        f"team\u202e/{SYSTEM}",
        f"team\u2028/{SYSTEM}",
        f"team\x1b[2J/{SYSTEM}",
        "x" * 2_000,
        "",
    ],
)
def test_foreign_or_hostile_key_is_refused_with_a_reason(key: Any) -> None:
    with pytest.raises(UnreadableKeyError) as refused:
        parse_key(key)
    assert refused.value.reason


@pytest.mark.parametrize("prefix", ["x\n\nURGENT: sign in/", "\u202e/", "a\x7f/", "\ufeff/"])
def test_job_file_key_under_a_hostile_prefix_is_of_no_job(prefix: str) -> None:
    assert parse_job_file_key(f"{prefix}job/job.json") is None
    assert parse_job_file_key("team \u00fc/job/job.json") == ProfileRoot("team \u00fc/", "job")


def test_key_made_for_a_minute_parses_back() -> None:
    root = ProfileRoot("p/", "job")
    assert parse_key(system_key(root, "algo-1", 1795248060)) == SystemKey(root, "algo-1", 1795248060)
