"""What `trainguard stragglers` says about a table is so, and a number that is not is found."""

import copy
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.claims.replays import untrue
from tests.stragglers.judged import judged
from tests.stragglers.simulated import Job, Planted

JOBS = {
    "rank": Job(stages=3, copies=3, batches=4, steps=5, planted=(Planted("rank", 1.5, 4),)),
    "host": Job(stages=2, copies=4, batches=4, steps=5, planted=(Planted("host", 1.5, 2),)),
    "copy": Job(stages=2, copies=4, batches=4, steps=5, schedule="GPipe", planted=(Planted("copy", 1.4, 1),)),
    "transfers": Job(stages=2, copies=3, batches=4, steps=5, planted=(Planted("transfers", 30.0),)),
    "sequences": Job(stages=1, copies=4, batches=6, steps=5, planted=(Planted("sequences", 1.6),)),
    "chunks": Job(stages=2, copies=2, batches=4, steps=4, schedule="GPipe", chunks=2),
    "beside": Job(stages=2, copies=2, batches=3, steps=4, schedule="GPipe", chunks=2, overlapping=True, jitter=0.1),
}


def said_of(content: bytes) -> dict[str, Any]:
    """Return the verdict as it stands in JSON."""
    found: dict[str, Any] = msgspec.to_builtins(judged(content))
    return found


@pytest.mark.parametrize("name", JOBS)
def test_what_is_said_of_a_table_is_true(name: str) -> None:
    content = replace(JOBS[name]).csv()
    said = said_of(content)
    assert untrue(content, said) == []


def test_wrong_numbers_of_stragglers_are_found() -> None:
    content = replace(JOBS["rank"]).csv()
    said = said_of(content)
    places: list[tuple[str | int, ...]] = [
        *((name,) for name in ("slowdown", "recorded_s", "replayed_s", "even_s", "steps", "rank_count")),
        *((name, 0, what) for name in ("ranks", "stages", "dp_ranks", "operations") for what in ("slowdown", "saves")),
        *(("causes", 0, what) for what in ("times", "saves")),
        *(("worst", what) for what in ("rank", "stage", "dp_rank")),
    ]
    for place in places:
        wrong = copy.deepcopy(said)
        held: Any = wrong
        for each in place[:-1]:
            held = held[each]
        held[place[-1]] = held[place[-1]] * 1.01 + 0.01
        assert untrue(content, wrong), place
    wrong = copy.deepcopy(said)
    wrong["causes"][0]["ranks"] = [0]
    assert "slowest" in untrue(content, wrong)
