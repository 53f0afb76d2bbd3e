"""Cost of the deployment an hour, as metric math over its use: the larger parts of the bill."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from aws_cdk import Duration, Tokenization
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.bundling import PROJECT_ROOT
from infra.constructs.function import TrainGuardFunction
from infra.constructs.measures import of_machine, of_table, product_metric
from infra.constructs.monitoring import WatchedParts
from infra.constructs.storage import ACTIVE_JOBS_INDEX

UNIT_PRICES = PROJECT_ROOT / "rules_layer" / "trainguard" / "running_costs" / "unit_prices.json"

TRANSITIONS = 12
"""Of an execution, about."""

_HOUR = Duration.hours(1)
_MIB_MS_IN_GIB_S = 1_024 * 1_000


@dataclass(frozen=True, slots=True)
class _Used:
    metric: cloudwatch.IMetric
    price: float
    units: int = 1


def cost_an_hour(parts: WatchedParts) -> cloudwatch.MathExpression:
    """Return the expression that adds up prices of each hour's use, in the price table's currency."""
    used = list(_used(parts))
    terms = (f"FILL(c{number}, 0) * {_factor(each)}" for number, each in enumerate(used))
    return cloudwatch.MathExpression(
        expression=" + ".join(terms),
        using_metrics={f"c{number}": each.metric for number, each in enumerate(used)},
        label="functions, tables, queue, workflows, objects",
        period=_HOUR,
    )


def unit_prices() -> dict[str, float]:
    """Return the packaged prices of one unit each."""
    document: dict[str, dict[str, float]] = json.loads(UNIT_PRICES.read_text(encoding="utf-8"))
    return document["prices"]


def _factor(used: _Used) -> str:
    """Return the factor of the metric; ``units`` stand for themselves, as a parameter may give them."""
    price = _decimal(used.price)
    return price if used.units == 1 else f"{Tokenization.stringify_number(used.units)} * {price}"


def _decimal(price: float) -> str:
    """Return a price with six significant digits and no exponent, whose ``e`` CDK takes for the name of a metric."""
    return f"{Decimal(f'{price:.6g}'):f}"


def _used(parts: WatchedParts) -> Iterator[_Used]:
    prices = unit_prices()
    for table in parts.table_names.values():
        yield _Used(of_table("ConsumedWriteCapacityUnits", table, period=_HOUR), prices["write_unit"])
        yield _Used(of_table("ConsumedReadCapacityUnits", table, period=_HOUR), prices["read_unit"])
    index = of_table("ConsumedWriteCapacityUnits", parts.table_names["Jobs"], period=_HOUR, index=ACTIVE_JOBS_INDEX)
    yield _Used(index, prices["write_unit"])
    for part in parts.functions:
        yield from _used_by(part, prices)
    queue = parts.ingest.evaluation_queue
    # A message is sent and deleted, and received with up to nine others.
    yield _Used(queue.metric_number_of_messages_sent(period=_HOUR), 2.1 * prices["queue_request"] + prices["event"])
    yield _Used(queue.metric_number_of_empty_receives(period=_HOUR), prices["queue_request"])
    evaluate = parts.evaluation.evaluate_objects
    yield _Used(product_metric("ObjectsApplied", evaluate, period=_HOUR), prices["object_get"])
    for machine in (parts.actions, parts.reports, parts.captures):
        yield _Used(
            of_machine("ExecutionsStarted", machine.state_machine_arn, period=_HOUR), TRANSITIONS * prices["transition"]
        )


def _used_by(part: TrainGuardFunction, prices: dict[str, float]) -> Iterator[_Used]:
    milliseconds = part.function.metric_duration(period=_HOUR, statistic="Sum")
    yield _Used(milliseconds, prices["compute_gib_s"] / _MIB_MS_IN_GIB_S, part.memory_mib)
    yield _Used(part.function.metric_invocations(period=_HOUR, statistic="Sum"), prices["invocation"])
