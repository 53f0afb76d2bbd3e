"""Whether the stack is as large as its running jobs need, by the sizing table of docs/reliability.md."""

from collections.abc import Iterator

from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.functions import queue_mappings
from trainguard.cli.doctor.site import Site
from trainguard.rules.units import counted
from trainguard.running_costs.sizing import SIZES, Size, size_for

SIZING = Check("sizing")

_TABLES = ("JobsTable", "NodeStateTable", "RuleStateTable")
_PAGE = "docs/reliability.md"


def check_sizing(site: Site) -> Iterator[CheckResult]:
    """Compare the stack's settings with the row of the table for the nodes of all jobs that run."""
    nodes = _running_nodes(site)
    if nodes == 0:
        yield SIZING.ok("no job runs")
        return
    row = size_for(nodes)
    if row is None:
        most = SIZES[-1].nodes
        found = f"{nodes:,} nodes run at once, and the sizing table ends at {most:,}"
        yield SIZING.warn(found, f"Run a second stack for some of the jobs: see {_PAGE}.")
        return
    yield grade_settings(nodes, row, _deployed(site))


def grade_settings(nodes: int, row: Size, deployed: dict[str, int]) -> CheckResult:
    """Judge the settings of a stack, by name; what is not known of them is left out of ``deployed``."""
    small = {name: value for name, value in row.settings.items() if deployed.get(name, value) < value}
    if not small:
        return SIZING.ok(f"{counted(nodes, 'node')} at once, settings enough for {row.nodes:,}")
    has = ", ".join(f"{name} is {deployed[name]:,}" for name in small)
    words = " ".join(f"-c {name}={value}" for name, value in small.items())
    return SIZING.warn(
        f"{counted(nodes, 'node')} at once: {has}",
        f"Verdicts may be late. Deploy with the settings of {_PAGE} for {row.nodes:,} nodes.",
        f'make deploy CDK_ARGS="{words}"',
    )


def _running_nodes(site: Site) -> int:
    with asking("dynamodb:Scan"):
        pages = site.clients.dynamodb.get_paginator("scan").paginate(
            TableName=site.deployment.output("JobsTable"),
            FilterExpression="attribute_exists(#active)",
            ProjectionExpression="#count",
            ExpressionAttributeNames={"#active": "Active", "#count": "InstanceCount"},
        )
        return sum(int(item.get("InstanceCount", {}).get("N", "1")) for page in pages for item in page["Items"])


def _deployed(site: Site) -> dict[str, int]:
    found = {}
    for name, function in (("evaluator_memory_mb", "evaluate_objects"), ("look_after_memory_mb", "look_after_job")):
        memory = site.functions[function].get("MemorySize") if function in site.functions else None
        if memory is not None:
            found[name] = memory
    at_once = [each.get("ScalingConfig", {}).get("MaximumConcurrency", 0) for each in queue_mappings(site)]
    if at_once and all(at_once):
        found["evaluator_concurrency"] = min(at_once)
    units = [units for table in _TABLES if (units := _most_units(site, table)) is not None]
    if units:
        found["max_write_units"] = min(units)
    return found


def _most_units(site: Site, output: str) -> int | None:
    """Return the cap on a table's write units; None where it has none."""
    with asking("dynamodb:DescribeTable"):
        table = site.clients.dynamodb.describe_table(TableName=site.deployment.output(output))["Table"]
    most = table.get("OnDemandThroughput", {}).get("MaxWriteRequestUnits", -1)
    return most if most > 0 else None
