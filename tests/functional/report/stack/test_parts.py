"""What functions of a report hand on: names that cannot leave their folder, and bytes that are read back or refused."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.core.errors import ReportPartError, ReportRunError
from trainguard.core.layout import ProfileRoot
from trainguard.report.timeline.series import TimeAxis
from trainguard.stack.report.parts import (
    DAY_S,
    MAX_PARTS,
    DigestItem,
    ReportPart,
    RunPlace,
    decode_items,
    decode_part,
    encode_items,
    encode_part,
)

ROOT = ProfileRoot("runs/", "job")
AXIS = TimeAxis(start=0.0, bucket_s=60.0, buckets=10)
NODES = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,62}[A-Za-z0-9])?", fullmatch=True)

items = st.builds(
    DigestItem,
    job=st.just("job"),
    bucket=st.just("profiles"),
    prefix=st.just("runs/"),
    run=st.from_regex(r"[A-Za-z0-9_-]{1,80}", fullmatch=True),
    node=NODES,
    day=st.integers(0, 40_000).map(lambda day: day * DAY_S),
    axis=st.just(AXIS),
    after=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    part=st.integers(0, MAX_PARTS - 1),
    more=st.booleans(),
)


@pytest.mark.parametrize("run", ["../other", "a/b", "", "a" * 81, "a b", "a\n", "é", "."])
def test_run_that_is_no_execution_is_refused(run: str) -> None:
    with pytest.raises(ReportRunError, match="expected the name of an execution"):
        RunPlace(ROOT, run)


@given(items)
def test_part_name_lies_in_its_run_folder_and_round_trips(
    item: DigestItem,
) -> None:
    place = item.place
    key = place.part(item)
    assert key.startswith(f"runs/job/rule-output/TrainGuardReport/parts/{item.run}/nodes/")
    assert key.count("/") == place.nodes.count("/") + 1
    assert place.parse_part(key) == (item.node, item.date, item.part)


@given(st.lists(items, max_size=5))
def test_items_are_a_list_a_distributed_map_reads(given_items: list[DigestItem]) -> None:
    body = encode_items(given_items)
    assert decode_items("key", body) == given_items
    assert [msgspec.convert(each, DigestItem) for each in json.loads(body)] == given_items


@given(st.text(max_size=20), st.booleans(), st.integers(0, 10), st.binary(max_size=50))
def test_given_a_part_when_written_then_it_reads_back(through: str, done: bool, unread: int, digest: bytes) -> None:
    part = ReportPart(after="", through=through, done=done, unread=unread, digest=digest)
    assert decode_part("key", encode_part(part)) == part


@pytest.mark.parametrize(
    "body", [b"", b"damaged", encode_part(ReportPart(format=99, after="", through="", done=True, unread=0, digest=b""))]
)
def test_invalid_part_bytes_error_names_the_key(body: bytes) -> None:
    with pytest.raises(ReportPartError, match="part 'the/key' of a report cannot be read"):
        decode_part("the/key", body)


@pytest.mark.parametrize("body", [b"", b"{}", b'[{"job": 1}]'])
def test_invalid_item_bytes_error_names_the_key(body: bytes) -> None:
    with pytest.raises(ReportPartError, match="part 'the/key' of a report cannot be read"):
        decode_items("the/key", body)


def test_keys_of_no_parts_give_none() -> None:
    place = RunPlace(ROOT, "run")
    for name in (
        "items.json",
        "algo-1/2026-01-01",
        "algo-1/x/2026-01-01.000",
        "algo-1/2026-01-01.0",
        "a b/2026-01-01.000",
    ):
        assert place.parse_part(place.nodes + name) is None
