"""Series as base64: what is read is what was written, to the precision that is promised."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.packed import unpack_floats, unpack_percents
from trainguard.report.html.packed import pack_floats, pack_percents

PERCENTS = st.lists(st.none() | st.floats(0.0, 100.0))
FLOATS = st.lists(st.none() | st.floats(-1e30, 1e30))


@given(PERCENTS)
def test_packed_percentages_are_read_to_a_quarter_percent(
    values: list[float | None],
) -> None:
    read = unpack_percents(pack_percents(values))
    assert [each is None for each in read] == [each is None for each in values]
    pairs = zip(values, read, strict=True)
    assert all(abs(value - found) <= 0.25 for value, found in pairs if value is not None and found is not None)


@given(PERCENTS)
def test_given_percentages_when_packed_then_a_value_is_one_byte(values: list[float | None]) -> None:
    assert len(base64.b64decode(pack_percents(values))) == len(values)


@given(FLOATS)
def test_given_values_when_packed_then_they_are_read_as_float32(values: list[float | None]) -> None:
    assert unpack_floats(pack_floats(values)) == [None if each is None else float(np.float32(each)) for each in values]


@pytest.mark.parametrize(("value", "shown"), [(-3.0, 0.0), (100.4, 100.0), (1e9, 100.0), (99.75, 100.0), (0.2, 0.0)])
def test_percentage_off_the_steps_takes_the_nearest_one(value: float, shown: float) -> None:
    assert unpack_percents(pack_percents([value])) == [shown]


def test_value_over_the_float32_range_stays_finite() -> None:
    (value,) = unpack_floats(pack_floats([1e300]))
    assert value is not None
    assert 3e38 < value < 4e38
