"""decode(encode(x)) == x, to the bit, and whole percents stay small."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trainguard.core.errors import StateCodecError
from trainguard.state.codec import CODEC, decode_state, encode_state, pack_column, quantise_column, unpack_column
from trainguard.state.sample_window import SampleWindowState

PERCENT = st.one_of(st.integers(0, 100).map(float), st.just(float("nan")))
HUNDREDTHS = st.one_of(st.integers(0, 10_000).map(lambda value: value / 100), st.just(float("nan")))


@pytest.mark.parametrize(
    "elements", [PERCENT, HUNDREDTHS, st.integers(-(2**53), 2**53).map(float), st.floats(width=64)]
)
@given(st.data())
def test_any_column_round_trips_bit_for_bit(elements: Any, data: Any) -> None:
    column = data.draw(arrays(np.float64, st.integers(0, 40), elements=elements))
    assert unpack_column(pack_column(column)).tobytes() == column.tobytes()


@pytest.mark.parametrize("odd", [[-0.0], [255.0], [254.0, np.nan], [655.35], [655.34], [1.005], [np.inf], [2.0**63]])
def test_values_at_packing_edges_round_trip(odd: Any) -> None:
    column = np.array(odd)
    assert unpack_column(pack_column(column)).tobytes() == column.tobytes()


@given(arrays(np.float64, 50, elements=PERCENT))
def test_whole_percents_take_one_byte_per_value(column: Any) -> None:
    assert len(pack_column(column).data) == 50


@given(arrays(np.float64, 50, elements=HUNDREDTHS))
def test_two_decimals_take_at_most_two_bytes_per_value(column: Any) -> None:
    assert len(pack_column(column).data) <= 100


@given(arrays(np.float64, 50, elements=HUNDREDTHS))
def test_degraded_window_moves_values_by_half_a_percent_at_most(column: Any) -> None:
    moved = np.abs(quantise_column(column) - column)
    assert np.nanmax(moved, initial=0.0) <= 0.5
    np.testing.assert_array_equal(np.isnan(moved), np.isnan(column))


def test_unknown_codec_is_named_with_its_item() -> None:
    with pytest.raises(StateCodecError, match=r"job/algo-1#system has Codec 9: .* a later version wrote it"):
        decode_state("job/algo-1#system", 9, encode_state(SampleWindowState()), SampleWindowState)


def test_given_damaged_bytes_when_decoded_then_the_item_is_named() -> None:
    with pytest.raises(StateCodecError, match=r"job/algo-1#system.*damaged"):
        decode_state("job/algo-1#system", CODEC, encode_state(SampleWindowState())[:-3], SampleWindowState)
