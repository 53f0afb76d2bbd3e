"""The three tables: active, forgetting what has expired, and restorable."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.site import Site

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

TABLES = Check("tables")
EXPIRY = Check("expiry")
BACKUPS = Check("backups")

_OUTPUTS = ("JobsTable", "NodeStateTable", "RuleStateTable")
_EXPIRES_AT = "ExpiresAt"
_WORKING = frozenset({"ACTIVE", "UPDATING"})


def check_tables(site: Site) -> Iterator[CheckResult]:
    """Judge the state of the tables and their indices."""
    faults: list[CheckResult] = []
    sizes = []
    for output in _OUTPUTS:
        with asking("dynamodb:DescribeTable"):
            table = site.clients.dynamodb.describe_table(TableName=site.deployment.output(output))["Table"]
        faults += grade_table(table)
        sizes.append(f"{output.removesuffix('Table')} {table.get('ItemCount', 0):,}")
    yield from TABLES.unless(faults, f"3 tables active; items, as of the last hours: {', '.join(sizes)}")


def grade_table(table: "TableDescriptionTypeDef") -> Iterator[CheckResult]:
    """Yield what is wrong with a table's state."""
    name = table.get("TableName", "")
    if (state := table.get("TableStatus", "unknown")) not in _WORKING:
        yield TABLES.fail(f"{name} is {state}", "See it in the console of DynamoDB, under Tables.")
    for index in table.get("GlobalSecondaryIndexes", []):
        if (state := index.get("IndexStatus", "unknown")) not in _WORKING:
            found = f"index {index.get('IndexName')} of {name} is {state}: the tick finds no jobs"
            yield TABLES.fail(found, "Wait until it is made; see the console of DynamoDB, under Tables, Indexes.")


def check_expiry(site: Site) -> Iterator[CheckResult]:
    """Judge whether items of jobs that ended expire."""
    faults = []
    for table in (site.deployment.output(output) for output in _OUTPUTS):
        with asking("dynamodb:DescribeTimeToLive"):
            set_to = site.clients.dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
        state, column = set_to.get("TimeToLiveStatus", "DISABLED"), set_to.get("AttributeName")
        if state not in {"ENABLED", "ENABLING"} or column != _EXPIRES_AT:
            wanted = f"Enabled=true,AttributeName={_EXPIRES_AT}"
            words = ("--table-name", table, "--time-to-live-specification", wanted)
            found = f"time to live of {table} is {state}" + ("" if column is None else f" on {column}")
            enable = site.aws("dynamodb", "update-time-to-live", *words)
            faults.append(EXPIRY.warn(found, "Items of jobs that ended stay for ever: enable it.", enable))
    yield from EXPIRY.unless(faults, f"time to live is on for 3 tables, by {_EXPIRES_AT}")


def check_backups(site: Site) -> Iterator[CheckResult]:
    """Judge whether the tables can be restored to a point in time."""
    faults = []
    for table in (site.deployment.output(output) for output in _OUTPUTS):
        with asking("dynamodb:DescribeContinuousBackups"):
            answer = site.clients.dynamodb.describe_continuous_backups(TableName=table)
        recovery = answer["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
        if (state := recovery.get("PointInTimeRecoveryStatus", "DISABLED")) != "ENABLED":
            wanted = "PointInTimeRecoveryEnabled=true"
            words = ("--table-name", table, "--point-in-time-recovery-specification", wanted)
            enable = site.aws("dynamodb", "update-continuous-backups", *words)
            found = f"point-in-time recovery of {table} is {state}"
            faults.append(BACKUPS.warn(found, "What is deleted by mistake is lost: enable it.", enable))
    yield from BACKUPS.unless(faults, "point-in-time recovery is on for 3 tables")
