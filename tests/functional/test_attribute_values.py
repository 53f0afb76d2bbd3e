"""Numbers and times survive the store without a rounding of their own."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.functional.strategies import floats, scalars
from trainguard.aws.dynamodb.attributes import NUMBER, SCALARS, ItemColumns, Scalar, number, scalar
from trainguard.core.timestamps import epoch_from_iso, iso_from_epoch, iso_time

_LEAST, _MOST = Decimal("1e-130"), Decimal("9.9999999999999999999999999999999999999e125")


@given(value=floats)
def test_any_finite_float_round_trips_bit_for_bit(value: float) -> None:
    read = ItemColumns({"Measured": number(value)}).get("Measured", NUMBER)
    assert read.hex() == (value + 0.0).hex() or read == value == 0


@given(value=floats | st.integers(-(2**200), 2**200))
def test_given_any_number_when_written_then_dynamodb_can_hold_it(value: float) -> None:
    written = number(value)
    if "N" in written:
        exact = Decimal(written["N"])
        assert exact == 0 or _LEAST <= abs(exact) <= _MOST
        assert len(exact.as_tuple().digits) <= 38
    else:
        assert written["M"].keys() == {"Number"}


@pytest.mark.parametrize(
    ("value", "expected"), [(0.1, "0.1"), (23.0, "23.0"), (70, "70"), (1e21, "1e+21"), (-0.0, "0")]
)
def test_measure_is_written_as_measured_for_people(value: float, expected: str) -> None:
    assert number(value) == {"N": expected}


@given(value=scalars)
def test_any_parameter_round_trips_with_its_type(value: Scalar) -> None:
    read = ItemColumns({"Parameters": {"M": {"name": scalar(value)}}}).get("Parameters", SCALARS)["name"]
    assert read == value
    assert isinstance(read, str) is isinstance(value, str)
    assert isinstance(read, bool) is isinstance(value, bool)


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_infinite_number_round_trips(value: float) -> None:
    assert ItemColumns({"Measured": number(value)}).get("Measured", NUMBER) == value


def test_large_float_in_dynamodb_digits_round_trips() -> None:
    # DynamoDB answers 1e+23 with all its digits, and that integer is not the float that was meant.
    digits = "100000000000000000000000"
    assert ItemColumns({"Parameters": {"M": {"name": {"N": digits}}}}).get("Parameters", SCALARS)["name"] == 1e23
    assert ItemColumns({"Measured": {"N": digits}}).get("Measured", NUMBER) == 1e23


@given(first=st.floats(-1e12, 1e12), second=st.floats(-1e12, 1e12))
def test_text_order_of_times_is_time_order(first: float, second: float) -> None:
    earlier, later = sorted((first, second))
    assert iso_from_epoch(earlier) <= iso_from_epoch(later)
    assert len(iso_from_epoch(earlier)) == len("2026-01-31T12:00:00.000Z")


@given(at=st.floats(0.0, 4e9))
def test_time_in_a_fire_matches_the_row_of_that_moment(at: float) -> None:
    assert iso_time(at) == iso_from_epoch(at)


@given(milliseconds=st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_time_on_a_millisecond_round_trips(milliseconds: int) -> None:
    assert epoch_from_iso(iso_from_epoch(milliseconds / 1000)) == milliseconds / 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00.250000Z", 60.25),
        ("1970-01-01T01:01:00.5+01:00", 60.5),
    ],
)
def test_time_written_by_another_is_the_same_moment(text: str, expected: float) -> None:
    assert epoch_from_iso(text) == expected
