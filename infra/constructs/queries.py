"""Saved queries of CloudWatch Logs Insights about verdicts; a test compares their words with the log messages."""

from collections.abc import Mapping

from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.monitoring import WatchedParts

FAILURES = """filter level in ["ERROR", "CRITICAL", "WARNING"]
| stats count(*) as times, latest(@timestamp) as last, latest(reason) as why by job, service, message
| sort times desc"""

FAULTS = r"""filter fault >= 1 or @message like /^\[ERROR\] |Task timed out after |Error: Runtime exited /
| stats count(*) as times, sum(fault) as points, latest(@timestamp) as last, latest(reason) as why by message, job, @log
| sort last desc"""

SLOW_OBJECTS = """filter message = "slow_objects"
| fields @timestamp, seconds, job, key
| sort seconds desc
| limit 50"""

LATE_AND_GAPS = """filter message in ["late", "gaps"]
| stats sum(amount) as objects, latest(@timestamp) as last by job, node, message
| sort objects desc"""

STOP_DECISIONS = """filter message = "stop decision"
| fields @timestamp, job, rule, decision, why
| sort @timestamp desc"""

ONE_JOB = """filter job = "my-training-job"
| fields @timestamp, service, level, message, node, rule, decision, reason, key, amount
| sort @timestamp asc
| limit 1000"""

UNUSABLE_INPUT = """filter message in ["bad_objects", "bad_lines", "bad_events", "foreign_keys", "malformed_messages"]
| stats sum(amount) as times, latest(reason) as why, latest(key) as last_key by job, message
| sort times desc"""

QUERIES: Mapping[str, str] = {
    "Faults": FAULTS,
    "Failures by job": FAILURES,
    "Slowest objects": SLOW_OBJECTS,
    "Late objects and gaps by node": LATE_AND_GAPS,
    "Decisions to stop": STOP_DECISIONS,
    "One job's story": ONE_JOB,
    "What could not be used": UNUSABLE_INPUT,
}


class Queries(Construct):
    """The queries, in a folder of the stack's name, over the logs of all functions."""

    def __init__(self, scope: Construct, parts: WatchedParts) -> None:
        super().__init__(scope, "Queries")
        groups = [part.log_group.log_group_name for part in parts.functions]
        for name, text in QUERIES.items():
            words = "".join(word.capitalize() for word in name.replace("'", "").split())
            query = f"{parts.platform.config.stack_name}/{name}"
            logs.CfnQueryDefinition(self, words, name=query, query_string=text, log_group_names=groups)
