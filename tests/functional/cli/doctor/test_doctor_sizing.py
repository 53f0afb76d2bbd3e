"""The stack's settings against the sizing table: what runs decides the row."""

from typing import Any

import pytest

from tests.functional.cli import healthy_answers
from tests.functional.cli.doctor.test_doctor_checks import account, examined, of_check
from tests.functional.cli.doctor_account import Account
from trainguard.cli.doctor.site import CheckLevel, CheckResult
from trainguard.cli.doctor.stack import grade_settings
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
    assert (sizing().level, sizing().found) == (CheckLevel.OK, "no job runs")


def test_jobs_within_the_defaults_are_healthy(account: Account) -> None:
    running(account, 400, 599, None)
    assert (sizing().level, sizing().found) == (CheckLevel.OK, "1,000 nodes at once, settings enough for 1,000")


def test_too_many_nodes_name_the_setting_and_the_command(
    account: Account,
) -> None:
    running(account, 1_001)
    found = sizing()
    assert found.level is CheckLevel.WARN
    assert found.found == "1,001 nodes at once: evaluator_concurrency is 20, reconcile_memory_mb is 512"
    assert found.command == 'make deploy CDK_ARGS="-c evaluator_concurrency=40 -c reconcile_memory_mb=1024"'


def test_more_nodes_than_the_table_advise_another_stack(account: Account) -> None:
    running(account, LARGEST.nodes, 1)
    assert (sizing().level, sizing().command) == (CheckLevel.WARN, None)
    assert "the sizing table ends at 10,000" in sizing().found


def test_write_units_are_ignored_for_uncapped_tables(account: Account) -> None:
    running(account, LARGEST.nodes)
    assert "max_write_units is 2,000" in sizing().found
    account.change("dynamodb", "DescribeTable", lambda answer, _: answer["Table"].pop("OnDemandThroughput"))
    assert "max_write_units" not in sizing().found


@pytest.mark.parametrize("size", SIZES)
def test_settings_of_a_row_suffice_and_one_less_is_too_small(size: Any) -> None:
    assert grade_settings(size.nodes, size, size.settings).level is CheckLevel.OK
    for name, value in size.settings.items():
        less = grade_settings(size.nodes, size, size.settings | {name: value - 1})
        assert (less.level, f"-c {name}={value}" in str(less.command)) == (CheckLevel.WARN, True)
