"""decode(encode(x)) == x, to the bit, and whole percents stay small."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trainguard.errors import StateCodecError
from trainguard.state.codec import CODEC, decode_state, encode_state, pack_column, quantise_column, unpack_column
from trainguard.state.sample_window import SampleWindowState

PERCENT = st.one_of(st.integers(0, 100).map(float), st.just(float("nan")))
HUNDREDTHS = st.one_of(st.integers(0, 10_000).map(lambda value: value / 100), st.just(float("nan")))


@pytest.mark.parametrize(
    "elements", [PERCENT, HUNDREDTHS, st.integers(-(2**53), 2**53).map(float), st.floats(width=64)]
)
@given(st.data())
def test_given_any_column_when_packed_and_unpacked_then_it_is_the_same_to_the_bit(elements: Any, data: Any) -> None:
    column = data.draw(arrays(np.float64, st.integers(0, 40), elements=elements))
    assert unpack_column(pack_column(column)).tobytes() == column.tobytes()


@pytest.mark.parametrize("odd", [[-0.0], [255.0], [254.0, np.nan], [655.35], [655.34], [1.005], [np.inf], [2.0**63]])
def test_given_values_at_the_edges_of_a_packing_when_packed_then_they_come_back(odd: Any) -> None:
    column = np.array(odd)
    assert unpack_column(pack_column(column)).tobytes() == column.tobytes()


@given(arrays(np.float64, 50, elements=PERCENT))
def test_given_whole_percents_when_packed_then_a_value_takes_one_byte(column: Any) -> None:
    assert len(pack_column(column).data) == 50


@given(arrays(np.float64, 50, elements=HUNDREDTHS))
def test_given_two_decimals_when_packed_then_a_value_takes_two_bytes_at_most(column: Any) -> None:
    assert len(pack_column(column).data) <= 100


@given(arrays(np.float64, 50, elements=HUNDREDTHS))
def test_given_a_degraded_window_when_quantised_then_no_value_moves_by_more_than_half_a_percent(column: Any) -> None:
    moved = np.abs(quantise_column(column) - column)
    assert np.nanmax(moved, initial=0.0) <= 0.5
    np.testing.assert_array_equal(np.isnan(moved), np.isnan(column))


def test_given_an_unknown_codec_when_decoded_then_the_item_and_codec_are_named() -> None:
    with pytest.raises(StateCodecError, match=r"job/algo-1#system has Codec 9: .* a later version wrote it"):
        decode_state("job/algo-1#system", 9, encode_state(SampleWindowState()), SampleWindowState)


def test_given_damaged_bytes_when_decoded_then_the_item_is_named() -> None:
    with pytest.raises(StateCodecError, match=r"job/algo-1#system.*damaged"):
        decode_state("job/algo-1#system", CODEC, encode_state(SampleWindowState())[:-3], SampleWindowState)
