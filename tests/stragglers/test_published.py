"""Two real jobs and their published what-if."""

import gzip
import json
from pathlib import Path

import pytest

from tests.stragglers.judged import judged
from trainguard.stragglers.causes import CauseKind
from trainguard.stragglers.verdict import StragglerVerdict

DATA = Path(__file__).parents[1] / "data" / "stragglers"
JOBS = ["AR", "ST"]


@pytest.fixture(scope="module", params=JOBS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def found(name: str) -> StragglerVerdict:
    return judged(gzip.decompress((DATA / f"{name}.csv.gz").read_bytes()))


@pytest.fixture(scope="module")
def published(name: str) -> dict[str, object]:
    answer: dict[str, object] = json.loads((DATA / f"{name}.json").read_bytes())
    return answer


def test_slowdown_is_the_published_one(found: StragglerVerdict, published: dict[str, object]) -> None:
    assert found.slowdown == pytest.approx(published["blocking_slowdown"], rel=0.005)
    assert 0 <= found.left_out < 0.02
    assert found.confidence == "high"


def test_each_stage_copy_and_kind_costs_what_is_published(
    found: StragglerVerdict, published: dict[str, object]
) -> None:
    assert {str(each.stage): each.slowdown for each in found.stages} == pytest.approx(
        published["blocking_decompose_by_stage"], rel=0.01
    )
    assert {str(each.dp_rank): each.slowdown for each in found.dp_ranks} == pytest.approx(
        published["blocking_decompose_by_dp_rank"], rel=0.01
    )
    assert {each.operation: each.slowdown for each in found.operations} == pytest.approx(
        published["blocking_decompose_by_optype"], rel=0.01
    )


def test_the_cause_is_the_slow_rank_or_the_long_last_stage(found: StragglerVerdict, name: str) -> None:
    first = found.causes[0]
    if name == "AR":
        assert (first.kind, first.ranks) == (CauseKind.RANKS, [0])
        assert first.saves == pytest.approx(0.5, abs=0.02)
        assert found.worst == {"rank": 0, "dp_rank": 0, "stage": 0, "operation": "backward-compute"}
    else:
        assert (first.kind, first.stage, first.unsure) == (CauseKind.STAGE, 3, False)
        assert found.worst == {"rank": 7, "dp_rank": 1, "stage": 3, "operation": "forward-compute"}
    assert len(found.causes) == 1
