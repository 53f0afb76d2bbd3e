"""Every kind of bad input has a counted, named outcome and costs no more than itself."""

import gzip
import json
from typing import Any

import numpy as np
import pytest

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.profile import system
from trainguard.formats.profile.system import read_system_object

MINUTE = 1_795_248_000


def line(
    dimension: Any = "GPUUtilization",
    name: Any = "gpu0",
    value: Any = 50.0,
    node: Any = "algo-1",
    second: Any = 1.0,
    **extra: Any,
) -> Any:
    fields = {"Type": "gpu", "Name": name, "Dimension": dimension, "Value": value, "NodeId": node}
    return json.dumps({**fields, "Timestamp": MINUTE + second, **extra}).encode() + b"\n"


def read(body: Any, node: Any = "algo-1") -> Any:
    return read_system_object("the/key", body, node=node, minute=MINUTE)


def test_series_order_does_not_depend_on_the_line_order() -> None:
    lines = [line(name="gpu10"), line(name="gpu2"), line(dimension="CPUUtilization", name="cpu0")]
    forward, backward = read(b"".join(lines)), read(b"".join(reversed(lines)))
    assert forward.table == backward.table
    assert [series.name for series in forward.table] == ["cpu0", "gpu2", "gpu10"]


@pytest.mark.parametrize(
    ("bad", "name", "amount"),
    [
        (b"not json\n", "bad_lines", 1),
        (b'{"Type":"gpu"}\n', "bad_lines", 1),
        (line().replace(b"50.0", b"NaN"), "bad_lines", 1),
        (line().replace(b"50.0", b'"50"'), "bad_lines", 1),
        (line().replace(b"gpu0", b"gpu\xff"), "bad_lines", 1),
        (line()[:-20], "bad_lines", 1),
        (line(value=-0.5), "values_out_of_range", 1),
        (line(value=101.5), "values_out_of_range", 1),
        (line(dimension="Algorithm", name="TransmitBytesPerSecond", value=1.1e15), "values_out_of_range", 1),
        (line().replace(b"50.0", b"1e999"), "bad_lines", 1),
        (line(node="algo-2"), "wrong_node", 1),
        (line(dimension="Temperature"), "unknown_dimensions", 1),
        (line(second=-61.0), "times_outside_minute", 1),
        (line(second=121.0), "times_outside_minute", 1),
        (b"".join(line(name=f"gpu{number}") for number in range(1, 70)), "too_many_series", 6),
    ],
)
def test_bad_line_is_lost_alone_and_counted(bad: Any, name: Any, amount: Any) -> None:
    samples = read(line() + line(second=2.0) + bad)
    good = samples.values[samples.series == 0]
    assert samples.tally[name] == amount
    assert good.tolist()[:2] == [50.0, 50.0]


@pytest.mark.parametrize("body", [b"\x00\x01garbage", b'{"Type":"gpu"}\n' * 3, line()[:-20]])
def test_object_without_a_readable_line_counts_as_unread(body: bytes) -> None:
    assert read(body).tally["bad_objects"] == 1
    assert read(line() + body).tally["bad_objects"] == 0


def test_unknown_dimension_does_not_affect_other_lines() -> None:
    good = (
        line()
        + line(dimension="CPUUtilization", name="cpu3", value=7.25)
        + line(dimension="", name="MemoryUsedPercent")
    )
    alone, beside = read(good), read(line(dimension="Temperature") + good)

    assert beside.table == alone.table
    assert beside.values.tolist() == alone.values.tolist()
    assert (alone.tally, beside.tally) == ({"lines": 3}, {"lines": 4, "unknown_dimensions": 1})


def test_lines_of_another_node_add_no_series() -> None:
    samples = read(line(name="gpu7", node="algo-2") + line() + line(name="gpu7", node="algo-2", second=999.0))

    assert [series.name for series in samples.table] == ["gpu0"]
    assert samples.tally == {"lines": 3, "wrong_node": 2}


def test_dimensions_that_no_rule_reads_are_not_counted_as_faults() -> None:
    samples = read(line() + line(dimension="Platform", name="ReceiveBytesPerSecond", value=1e9) + line(dimension=""))
    assert samples.tally == {"lines": 3}
    assert samples.values.size == 1


def test_value_just_over_100_is_clipped_as_rounding() -> None:
    assert read(line(value=100.6)).values.tolist() == [100.0]


def test_integers_and_a_missing_final_newline_are_accepted() -> None:
    assert read(line(value=7).rstrip(b"\n")).values.tolist() == [7.0]


def test_given_a_gzip_stream_when_read_then_its_lines_are_used() -> None:
    samples = read(gzip.compress(line() * 3))
    assert samples.values.size == 3
    assert samples.tally["gzip_objects"] == 1


def test_truncated_gzip_is_counted_and_its_whole_part_used() -> None:
    rng = np.random.default_rng(0)
    body = b"".join(line(value=float(value)) for value in rng.uniform(0, 100, 500))
    samples = read(gzip.compress(body)[:-2_000])
    assert samples.tally["truncated_objects"] == 1
    assert 0 < samples.values.size < 500


def test_object_with_a_broken_gzip_stream_is_named() -> None:
    with pytest.raises(TelemetryFormatError, match=r"the/key.*broken gzip"):
        read(b"\x1f\x8b" + b"rubbish" * 9)


@pytest.mark.parametrize("body", [b"", b"\n \n"])
def test_given_an_empty_object_when_read_then_it_is_counted(body: Any) -> None:
    samples = read(body)
    assert samples.tally["empty_objects"] == 1
    assert samples.values.size == 0


def test_more_bytes_than_a_node_minute_can_have_are_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr(system, "MAX_OBJECT_BYTES", 1_000)
    with pytest.raises(TelemetryFormatError, match="larger than 1000 bytes"):
        read(line() * 20)
    with pytest.raises(TelemetryFormatError, match="larger than 1000 bytes"):
        read(gzip.compress(line() * 20))


def test_million_lines_are_refused_before_filling_the_memory() -> None:
    with pytest.raises(TelemetryFormatError, match="1000000 records"):
        read(b"{      }\n" * 1_000_000)


def test_maximum_number_of_worthless_lines_is_counted() -> None:
    assert read(b"{      }\n" * 500_000).tally["bad_lines"] == 500_000


def test_endlessly_nested_line_is_lost_alone() -> None:
    samples = read(line() + b'{"x":' + b"[" * 5_000 + b"\n" + line(second=2.0))
    assert samples.tally["bad_lines"] == 1
    assert samples.values.size == 2


def test_device_name_with_line_breaks_stays_on_one_line() -> None:
    assert read(line(name="gpu0\n\nAction: none")).table[0].name == "gpu0??Action: none"


def test_network_bytes_are_kept_and_host_percents_bounded() -> None:
    text = (
        line(dimension="Algorithm", name="ReceiveBytesPerSecond", value=1e9)
        + line(dimension="Algorithm", name="TransmitBytesPerSecond", value=-1.0)
        + line(dimension="Platform", name="MemoryUsedPercent", value=100.5)
    )
    samples = read(text)
    assert [(series.kind, series.name) for series in samples.table] == [
        ("host_memory", "MemoryUsedPercent"),
        ("network", "ReceiveBytesPerSecond"),
        ("network", "TransmitBytesPerSecond"),
    ]
    assert samples.values.tolist() == [1e9, 100.0]
    assert samples.tally == {"lines": 3, "values_out_of_range": 1}
