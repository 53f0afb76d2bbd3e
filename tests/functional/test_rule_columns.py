"""What a person reads of a row in the console, and in how few bytes."""

from dataclasses import replace

from msgspec.structs import replace as replace_fact

from tests.functional.test_rule_states_contract import OUTCOME, RULE, row_at
from tests.functional.worlds import MotoUnderTest
from trainguard.core.finding import Episode, Fact, Severity

FACTS = (
    Fact(
        name="mean_utilization",
        value=41.25,
        unit="%",
        series="GPUUtilization",
        device="gpu3",
        start=1_700_000_000.0,
        end=1_700_002_400.0,
        threshold=70.0,
    ),
    Fact(name="mean_utilization", value=9, unit="%", node="algo-2", device="gpu0"),
    Fact(name="idle_since", value=1_700_000_000.0, unit="time"),
    Fact(name="framework", value="jax"),
    Fact(name="gain_share", value=0.25, unit="share"),
)


def test_published_row_is_readable_in_the_console(
    moto_world: MotoUnderTest,
) -> None:
    row = replace(
        row_at(1_700_000_000.25),
        finding=replace(row_at(1_700_000_000.25).finding, measured=0.1 + 0.2, threshold=70),
        quantity="p95",
        parameters={"patience": 500, "dry": True},
    )
    row = replace(
        row, finding=replace(row.finding, severity=Severity.HIGH, advice="Prefetch."), unit="%", affected_percent=75.5
    )
    moto_world.rows.publish(
        [
            replace(
                row,
                finding=replace(row.finding, cost="about USD 12.40 of 20.10 so far", finding_kind="idle", facts=FACTS),
                wasted_percent=61.7,
            )
        ]
    )
    assert moto_world.row("job", RULE) == {
        "TrainingJobName": {"S": "job"},
        "RuleTarget": {"S": RULE},
        "Status": {"S": "OK"},
        "DebuggerStatus": {"S": "InProgress"},
        "Reason": {"S": "p95 is 23 %."},
        "Measured": {"N": "0.30000000000000004"},
        "Threshold": {"N": "70"},
        "Quantity": {"S": "p95"},
        "Unit": {"S": "%"},
        "Severity": {"S": "high"},
        "Advice": {"S": "Prefetch."},
        "AffectedPercent": {"N": "75.5"},
        "CostLost": {"S": "about USD 12.40 of 20.10 so far"},
        "WastedPercent": {"N": "61.7"},
        "DataPoints": {"N": "0"},
        "Violations": {"N": "0"},
        "TimesFired": {"N": "0"},
        "EvaluatedThrough": {"S": "2023-11-14T22:13:20.250Z"},
        "Counters": {"M": {}},
        "Parameters": {"M": {"patience": {"N": "500"}, "dry": {"BOOL": True}}},
        "Kind": {"S": "idle"},
        "Facts": {
            "L": [
                {
                    "M": {
                        "Name": {"S": "mean_utilization"},
                        "Value": {"N": "41.25"},
                        "Unit": {"S": "%"},
                        "Series": {"S": "GPUUtilization"},
                        "Device": {"S": "gpu3"},
                        "From": {"S": "2023-11-14T22:13:20.000Z"},
                        "To": {"S": "2023-11-14T22:53:20.000Z"},
                        "Threshold": {"N": "70.0"},
                    }
                },
                {
                    "M": {
                        "Name": {"S": "mean_utilization"},
                        "Value": {"N": "9"},
                        "Unit": {"S": "%"},
                        "Node": {"S": "algo-2"},
                        "Device": {"S": "gpu0"},
                    }
                },
                {
                    "M": {
                        "Name": {"S": "idle_since"},
                        "Value": {"S": "2023-11-14T22:13:20.000Z"},
                        "Unit": {"S": "time"},
                    }
                },
                {"M": {"Name": {"S": "framework"}, "Value": {"S": "jax"}}},
                {"M": {"Name": {"S": "gain_share"}, "Value": {"N": "0.25"}, "Unit": {"S": "share"}}},
            ]
        },
        "fact.mean_utilization gpu3 GPUUtilization": {
            "S": "41.2 % (GPUUtilization, gpu3, 2023-11-14 22:13 to 22:53 UTC, threshold 70 %)"
        },
        "fact.mean_utilization algo-2 gpu0": {"S": "9 % (algo-2, gpu0)"},
        "fact.idle_since": {"S": "2023-11-14T22:13:20.000Z"},
        "fact.framework": {"S": "jax"},
        "fact.gain_share": {"S": "25 %"},
    }


def test_when_facts_are_gone_then_their_columns_are_too(moto_world: MotoUnderTest) -> None:
    moto_world.rows.publish(
        [replace(row_at(60.0), finding=replace(row_at().finding, finding_kind="idle", facts=FACTS))]
    )
    moto_world.update_row("job", RULE, OUTCOME)
    moto_world.rows.publish([replace(row_at(120.0), finding=replace(row_at().finding, facts=FACTS[-1:]))])
    item = moto_world.row("job", RULE)
    assert [name for name in item if name.startswith("fact.")] == ["fact.gain_share"]
    assert "Kind" not in item
    assert item["FireId"] == OUTCOME["FireId"]
    moto_world.rows.publish([row_at(180.0)])
    assert not [name for name in moto_world.row("job", RULE) if name.startswith("fact.") or name == "Facts"]


def test_given_many_facts_then_twelve_are_kept_in_few_bytes(moto_world: MotoUnderTest) -> None:
    facts = [replace_fact(FACTS[0], name="mean_utilization_at_work", device=f"gpu{place}") for place in range(20)]
    episodes = tuple(
        Episode(60.0 + each, 61.0 + each, ("algo-1",), ("gpu0", "gpu1"), 31.5, 912.125, 1.91, "USD")
        for each in range(8)
    )
    finding = replace(row_at().finding, reason="r" * 600, advice="a" * 300, facts=tuple(facts), episodes=episodes)
    moto_world.rows.publish([replace(row_at(), finding=finding)])
    (read,) = moto_world.rows.of_job("job")
    assert read.finding.facts == tuple(facts[:12])
    assert read.finding.episodes == episodes
    item = moto_world.row("job", RULE)
    assert sum(name.startswith("fact.") for name in item) == 12
    assert _size(item) < 6 * 1_024


def _size(value: object) -> int:
    """Return about how many bytes DynamoDB counts: names and values, and three for what holds others."""
    if isinstance(value, dict):
        return 3 + sum(len(name) * (len(name) > 1) + _size(each) for name, each in value.items())
    if isinstance(value, list):
        return 3 + sum(map(_size, value))
    return len(str(value))
