"""How many files of the product a minute and a scalar pass: fewer are plainer to read, more need a reason."""

import pytest

from tests.scale.ways import WAYS


@pytest.mark.parametrize(
    ("way", "most"),
    [
        ("a profile minute to its item", 48),
        ("a delivered profile minute to what is stored", 56),
        ("a scalar to a fire", 56),
    ],
)
def test_way_of_a_message_passes_few_files(way: str, most: int) -> None:
    assert WAYS[way]().files <= most
