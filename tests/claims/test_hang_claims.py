"""What HungJob says about dumps is true of the files, and a wrong fact of them is found."""

import copy
from typing import Any

import pytest

from tests.claims.check import checked, wrong_facts
from tests.claims.context import Raw, raw_of
from tests.claims.product import report_of
from tests.functional.local.test_hang_dumps import HANG_MIN, STACK, hung_job, leave_dumps, taken_at
from tests.verdicts.labelled.description import Reading

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


@pytest.fixture(scope="module", params=["Lost", "XID"])
def broken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    value = {"Lost": 1.0, "XID": 79.0}[request.param]
    reading = Reading(name=request.param, value=value, start_min=HANG_MIN - 1.0, gpus=(1,))
    folder = hung_job(tmp_path_factory.mktemp("broken"), reading)
    leave_dumps(folder / "hang-dumps" / "algo-1" / taken_at(HANG_MIN + 2.0), as_json=True)
    return raw_of(folder), report_of(folder)


def test_what_is_said_of_gpus_in_a_hang_is_true(broken: Job) -> None:
    assert [str(claim) for _, claim in checked("job", *broken).untrue] == []
    assert any(each["name"] == "gpu_fault" for each in _hung(broken[1])["facts"])


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("gpu_fault", {"value": "rows"}),
        ("gpu_fault", {"device": "gpu0"}),
        ("gpu_xid", {"value": 48}),
        ("gpu_xid", {"from": 0.0}),
    ],
)
def test_a_wrong_fact_of_gpus_in_a_hang_is_found(broken: Job, name: str, changed: dict[str, object]) -> None:
    raw, report = broken[0], copy.deepcopy(broken[1])
    facts = [each for each in _hung(report)["facts"] if each["name"] == name]
    for fact in facts:
        fact.update(changed)
    assert not facts or any(name in each for each in wrong_facts(raw, report, "HungJob"))


def _hung(report: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in report["findings"] if each["rule"] == "HungJob")
