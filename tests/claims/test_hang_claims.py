"""What HungJob says about dumps is true of the files, and a wrong fact of them is found."""

import copy
from typing import Any

import pytest

from tests.claims.check import checked, wrong_facts
from tests.claims.context import Raw, raw_of
from tests.claims.product import report_of
from tests.functional.local.test_hang_dumps import HANG_MIN, STACK, hung_job, leave_dumps, taken_at

Job = tuple[Raw, dict[str, Any]]


@pytest.fixture(scope="module", params=["lock", "gpu", "killed", "other_shape"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = hung_job(tmp_path_factory.mktemp("hang"))
    place = folder / "hang-dumps" / "algo-1" / taken_at(HANG_MIN + 2.0)
    leave_dumps(place, request.param, as_json=True)
    (place / "stack_rank_5.txt").write_text(STACK)
    return raw_of(folder), report_of(folder)


def test_what_is_said_of_ranks_is_true(job: Job) -> None:
    assert [str(claim) for _, claim in checked("job", *job).untrue] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("culprit_rank", 2),
        ("culprit_kind", "not_entered"),
        ("awaited_operation", "broadcast"),
        ("awaited_sequence", 99),
        ("ranks_waiting", 3),
        ("culprit_sequence", 99),
        ("culprit_line", "/job/other.py:3 f"),
    ],
)
def test_a_wrong_fact_of_ranks_is_found(job: Job, name: str, value: object) -> None:
    raw, report = job[0], copy.deepcopy(job[1])
    finding = next(each for each in report["findings"] if each["rule"] == "HungJob")
    facts = [each for each in finding["facts"] if each["name"] == name]
    if facts and facts[0]["value"] == "not_entered":
        value = "no_dump"
    for fact in facts[:1]:
        fact["value"] = value
    assert not facts or wrong_facts(raw, report, "HungJob")
