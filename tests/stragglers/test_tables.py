"""Tables of operations in all forms, and damaged ones: counted, named, never a wrong rank."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stragglers.judged import judged
from tests.stragglers.simulated import Job, Planted
from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.operations import read_operations, together
from trainguard.stragglers.causes import CauseKind
from trainguard.stragglers.verdict import straggler_verdict

DATA = Path(__file__).parents[1] / "data" / "stragglers"
SLOW_RANK = Job(copies=3, stages=2, batches=3, steps=5, planted=(Planted("rank", 2.0, 4),))
WHOLE = SLOW_RANK.csv()
HEADER, *ROWS = WHOLE.decode().splitlines()
NAMES = HEADER.split(",")

Row = dict[str, str]


def rows() -> list[Row]:
    return [dict(zip(NAMES, line.split(","), strict=True)) for line in ROWS]


def written(found: list[Row]) -> bytes:
    return "\n".join([HEADER, *(",".join(row[name] for name in NAMES) for row in found)]).encode()


@pytest.mark.parametrize("form", ["snappy", "zstd"])
def test_parquet_has_numbers_texts_and_missing_values(form: str) -> None:
    pytest.importorskip("pyarrow")
    table, faults = read_operations((DATA / f"{form}.parquet").read_bytes(), form)
    assert len(table) == 500
    assert not faults
    assert table.rank.tolist() == [0, 1] * 250
    assert table.kind.tolist() == ["forward-compute", "backward-compute"] * 250
    assert table.start.tolist() == [at / 4 for at in range(500)]
    assert [at for at in range(500) if not np.isfinite(table.duration[at])] == [3]
    assert table.batch.tolist() == [at // 2 if at % 5 else -1 for at in range(500)]
    assert table.host.tolist() == ["a", ""] * 250


@given(st.integers(0, 3000), st.binary(min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_damaged_parquet_is_an_error_or_a_table(at: int, noise: bytes) -> None:
    data = bytearray((DATA / "snappy.parquet").read_bytes())
    data[at : at + len(noise)] = noise
    try:
        table, _ = read_operations(bytes(data), "damaged.parquet")
    except TelemetryFormatError:
        return
    straggler_verdict(table, {})


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_an_error_or_a_table(data: bytes) -> None:
    try:
        table, _ = read_operations(b"rank,step,op,start,duration\n" + data, "any.csv")
    except TelemetryFormatError:
        return
    straggler_verdict(table, {})


def test_json_lines_say_the_same_as_csv() -> None:
    texts = {"optype", "host"}
    given = [{key: value if key in texts else float(value) for key, value in row.items()} for row in rows()]
    lines = [json.dumps(row) for row in given]
    found = judged("\n".join([*lines, "{damaged"]).encode())
    assert found.slowdown == pytest.approx(judged(WHOLE).slowdown)
    assert found.faults == {"lines that are no JSON object": 1}


def test_tables_of_each_rank_are_one_job() -> None:
    parts = [written([row for row in rows() if row["rank"] == str(rank)]) for rank in range(6)]
    table = together([read_operations(part, "part.csv")[0] for part in parts])
    found = straggler_verdict(table, {})
    assert not isinstance(found, Counter)
    assert found.causes == judged(WHOLE).causes


def test_missing_columns_are_named_with_those_that_are_there() -> None:
    with pytest.raises(TelemetryFormatError, match=r"lacks columns of operations: start .*: rank, step, op"):
        read_operations(b"rank,step,op,duration\n0,1,x,2\n", "table.csv")


def _without_number(found: list[Row]) -> None:
    found[40]["duration"] = "nan"


def _without_rank(found: list[Row]) -> None:
    found[40]["rank"] = "?"


def _without_row(found: list[Row]) -> None:
    del found[next(at for at, row in enumerate(found) if row["optype"] == "forward-recv")]


def _twice(found: list[Row]) -> None:
    found.append(dict(next(row for row in found if row["optype"] == "forward-compute")))


def _overlapping(found: list[Row]) -> None:
    next(row for row in found if row["optype"] == "forward-compute")["duration"] = "0.5"


FAULTS: dict[str, Callable[[list[Row]], None]] = {
    "rows without a number": _without_number,
    "rows without a number: a rank": _without_rank,
    "operations that are missing or twice there": _without_row,
    "operations that are missing or twice there: twice": _twice,
    "operations that overlap": _overlapping,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_step_with_a_fault_is_left_out_and_counted(fault: str) -> None:
    found = rows()
    FAULTS[fault](found)
    verdict = judged(written(found))
    assert fault.partition(":")[0] in verdict.faults
    assert (verdict.steps, verdict.steps_left_out) == (4, 1)
    assert (verdict.causes[0].kind, verdict.causes[0].ranks) == (CauseKind.RANKS, [4])


def test_message_without_its_partner_is_counted() -> None:
    found = [row for row in rows() if (row["step"], row["optype"], row["rank"]) != ("10", "forward-recv", "4")]
    verdict = judged(written(found))
    assert verdict.faults["operations without a partner"] > 0
    assert verdict.steps_left_out == 1


def test_much_that_is_left_out_lowers_the_confidence() -> None:
    found = [row for row in rows() if row["optype"] != "optimizer-clip-main-grad" or row["rank"] != "0"]
    kept = [row for row in rows() if int(row["step"]) > 11]
    verdict = judged(written([row for row in found if int(row["step"]) <= 11] + kept))
    assert (verdict.confidence, verdict.steps_left_out) == ("low", 2)


def test_operations_that_wait_for_each_other_are_counted() -> None:
    lines = [
        "rank,step,op,start,duration,group",
        "0,1,first,0,2,a",
        "0,1,second,2,1,b",
        "1,1,third,0,2,b",
        "1,1,fourth,2,1,a",
    ]
    found = straggler_verdict(*read_operations("\n".join(lines).encode(), "table.csv"))
    assert found == {"operations that wait for each other": 4}


def test_groups_say_who_takes_part_where_kinds_do_not() -> None:
    lines = ["rank,step,op,start,duration,group"]
    for step in range(6):
        for rank in range(4):
            work = 2.0 if rank == 3 else 1.0
            lines.append(f"{rank},{step},work,0,{work},")
            lines.append(f"{rank},{step},exchange,{work},{2.1 - work},all")
    found = judged("\n".join(lines).encode())
    assert found.replayed_s == pytest.approx(2.1)
    assert (found.causes[0].ranks, found.unknown_kinds) == ([3], ["work"])
    assert found.causes[0].saves == pytest.approx(1 / 2.1)


@given(st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_order_of_rows_does_not_matter(random: Any) -> None:
    found = list(ROWS)
    random.shuffle(found)
    assert judged("\n".join([HEADER, *found]).encode()) == judged(WHOLE)


CHANGE = st.tuples(st.integers(0, len(ROWS) - 1), st.sampled_from(NAMES), st.sampled_from(["", "7", "-3", "1e9"]))


@given(st.lists(CHANGE))
@settings(max_examples=60, deadline=None)
def test_damage_never_names_an_innocent_rank(changes: list[tuple[int, str, str]]) -> None:
    found = rows()
    for at, name, value in changes:
        found[at][name] = value
    verdict = straggler_verdict(*read_operations(written(found), "table.csv"))
    if not isinstance(verdict, Counter):
        named = {rank for cause in verdict.causes for rank in cause.ranks}
        assert named <= {4} or verdict.confidence == "low"
