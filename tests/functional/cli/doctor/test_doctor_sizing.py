"""The stack's settings against the sizing table: what runs decides the row."""

from typing import Any

import pytest

from tests.functional.cli import healthy_answers
from tests.functional.cli.doctor.test_doctor_checks import account, examined, of_check
from tests.functional.cli.doctor_account import Account
from trainguard.cli.doctor.check import CheckResult, Level
from trainguard.cli.doctor.sizing import grade_settings
from trainguard.running_costs.sizing import SIZES

__all__ = ["account"]

LARGEST = SIZES[-1]


def running(account: Account, *nodes: int | None) -> None:
    items: list[Any] = [{} if each is None else {"InstanceCount": {"N": str(each)}} for each in nodes]
    account.answers["dynamodb", "Scan"] = healthy_answers.always(
        {"Items": items, "Count": len(items), "ScannedCount": len(items)}
    )


def sizing() -> CheckResult:
    (found,) = of_check(examined(), "sizing")
    return found


def test_given_no_job_when_examined_then_nothing_is_compared(account: Account) -> None:
    assert (sizing().level, sizing().found) == (Level.OK, "no job runs")


def test_given_jobs_that_the_defaults_are_enough_for_when_examined_then_all_is_well(account: Account) -> None:
    running(account, 400, 599, None)
    assert (sizing().level, sizing().found) == (Level.OK, "1,000 nodes at once, settings enough for 1,000")


def test_given_more_nodes_than_the_settings_stand_when_examined_then_it_names_what_is_small_and_the_command(
    account: Account,
) -> None:
    running(account, 1_001)
    found = sizing()
    assert found.level is Level.WARN
    assert found.found == "1,001 nodes at once: evaluator_concurrency is 20, look_after_memory_mb is 512"
    assert found.command == 'make deploy CDK_ARGS="-c evaluator_concurrency=40 -c look_after_memory_mb=1024"'


def test_given_more_nodes_than_the_table_has_when_examined_then_another_stack_is_advised(account: Account) -> None:
    running(account, LARGEST.nodes, 1)
    assert (sizing().level, sizing().command) == (Level.WARN, None)
    assert "the sizing table ends at 10,000" in sizing().found


def test_given_tables_without_a_cap_when_examined_then_write_units_are_no_matter(account: Account) -> None:
    running(account, LARGEST.nodes)
    assert "max_write_units is 2,000" in sizing().found
    account.change("dynamodb", "DescribeTable", lambda answer, _: answer["Table"].pop("OnDemandThroughput"))
    assert "max_write_units" not in sizing().found


@pytest.mark.parametrize("size", SIZES)
def test_given_a_row_when_the_settings_are_its_own_then_all_is_well_and_one_less_is_too_small(size: Any) -> None:
    assert grade_settings(size.nodes, size, size.settings).level is Level.OK
    for name, value in size.settings.items():
        less = grade_settings(size.nodes, size, size.settings | {name: value - 1})
        assert (less.level, f"-c {name}={value}" in str(less.command)) == (Level.WARN, True)
