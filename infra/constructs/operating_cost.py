"""Cost of the deployment an hour, as metric math over its use: the larger parts of the bill."""

import json
from collections.abc import Iterator
from decimal import Decimal

from aws_cdk import Duration, Tokenization
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.constructs.measures import of_machine, of_table, product_metric
from infra.constructs.monitoring import WatchedParts
from infra.places import PACKAGE_SOURCE
from trainguard.aws.dynamodb.jobs import ACTIVE_JOBS_INDEX
from trainguard.aws.dynamodb.rule_states import BY_STATUS_INDEX

UNIT_PRICES = PACKAGE_SOURCE / "running_costs" / "unit_prices.json"

# Of an execution, about.
TRANSITIONS = 12

_HOUR = Duration.hours(1)
_MIB_MS_IN_GIB_S = 1_024 * 1_000


def cost_an_hour(parts: WatchedParts) -> cloudwatch.MathExpression:
    """Return the expression that adds up prices of each hour's use, in the price table's currency."""
    used = list(_used(parts))
    terms = (f"FILL(c{number}, 0) * {factor}" for number, (_, factor) in enumerate(used))
    return cloudwatch.MathExpression(
        expression=" + ".join(terms),
        using_metrics={f"c{number}": metric for number, (metric, _) in enumerate(used)},
        label="functions, tables, queue, workflows, objects",
        period=_HOUR,
    )


def unit_prices() -> dict[str, float]:
    document: dict[str, dict[str, float]] = json.loads(UNIT_PRICES.read_text(encoding="utf-8"))
    return document["prices"]


def _decimal(price: float) -> str:
    """Return a price with six significant digits and no exponent, whose ``e`` CDK takes for the name of a metric."""
    return f"{Decimal(f'{price:.6g}'):f}"


def _used(parts: WatchedParts) -> Iterator[tuple[cloudwatch.IMetric, str]]:
    """Yield metrics with the factors that make costs of them."""
    prices = unit_prices()
    write, read = _decimal(prices["write_unit"]), _decimal(prices["read_unit"])
    for table in parts.table_names.values():
        yield of_table("ConsumedWriteCapacityUnits", table, period=_HOUR), write
        yield of_table("ConsumedReadCapacityUnits", table, period=_HOUR), read
    for table, index in (("Jobs", ACTIVE_JOBS_INDEX), ("RuleState", BY_STATUS_INDEX)):
        yield of_table("ConsumedWriteCapacityUnits", parts.table_names[table], period=_HOUR, index=index), write
    a_millisecond = _decimal(prices["compute_gib_s"] / _MIB_MS_IN_GIB_S)
    for part in parts.shown:
        # The memory stands for itself, as a parameter may give it.
        memory = Tokenization.stringify_number(part.memory_mib)
        yield part.function.metric_duration(period=_HOUR, statistic="Sum"), f"{memory} * {a_millisecond}"
        yield part.function.metric_invocations(period=_HOUR, statistic="Sum"), _decimal(prices["invocation"])
    queue = parts.platform.ingest.evaluation_queue
    # A message is sent and deleted, and received with up to nine others.
    sent = 2.1 * prices["queue_request"] + prices["event"]
    yield queue.metric_number_of_messages_sent(period=_HOUR), _decimal(sent)
    yield queue.metric_number_of_empty_receives(period=_HOUR), _decimal(prices["queue_request"])
    applied = product_metric("ObjectsApplied", parts.evaluation.evaluate_objects, period=_HOUR)
    yield applied, _decimal(prices["object_get"])
    for machine in (parts.actions, parts.reports, parts.captures):
        started = of_machine("ExecutionsStarted", machine.state_machine_arn, period=_HOUR)
        yield started, _decimal(TRANSITIONS * prices["transition"])
