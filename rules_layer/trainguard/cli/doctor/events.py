"""The EventBridge rules: switched on, matching what they should, and with somewhere to send it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.site import Site
from trainguard.rules.units import counted

if TYPE_CHECKING:
    from mypy_boto3_events.type_defs import DescribeRuleResponseTypeDef, TargetOutputTypeDef

RULES = Check("EventBridge rules")
PATTERN = Check("event pattern")

_DEPLOY = "Deploy the stack again: `make deploy`."
_S3 = "aws.s3"
_WANTED = {"new objects": _S3, "state changes of training jobs": "aws.sagemaker"}
SAMPLE_KEYS = (
    "prefix/job/profiler-output/system/incremental/2026071410/1784024700.algo-1.json",
    "prefix/job/profiler-output/framework/pevents/2026071410/1784024759999999_7-algo-1_pythontimeline.json",
    (
        "prefix/job/profiler-output/framework/tensorflow/detailed_profiling/2026071410/1/"
        "algo-1_1784024700000000_1784024759999999.metadata"
    ),
    "prefix/job/profiler-output/system/training_job_end.ts",
    "prefix/job/profiler-output/framework/training_job_end.ts",
)
"""One key of each kind that sends a message."""


def check_rules(site: Site) -> Iterator[CheckResult]:
    """Judge every rule of the stack, and that none is missing."""
    faults: list[CheckResult] = []
    for rule in site.rules:
        name = rule["Name"]
        with asking("events:ListTargetsByRule"):
            targets = site.clients.events.list_targets_by_rule(Rule=name).get("Targets", [])
        faults += grade_rule(rule, targets, site.aws("events", "enable-rule", "--name", name))
    faults += grade_kinds(site.rules, objects=bool(site.names("AWS::S3::Bucket")))
    yield from RULES.unless(faults, f"{counted(len(site.rules), 'rule')} enabled, each with a target")


def grade_rule(
    rule: "DescribeRuleResponseTypeDef", targets: "Sequence[TargetOutputTypeDef]", enable: str
) -> Iterator[CheckResult]:
    """Yield what is wrong with one rule; ``enable`` is the command that switches it on."""
    purpose = rule.get("Description")
    about = rule["Name"] if purpose is None else f"{rule['Name']} ({purpose})"
    if not rule["State"].startswith("ENABLED"):
        yield RULES.fail(f"{about} is {rule['State']}", "Enable it.", enable)
    if not targets:
        yield RULES.fail(f"{about} has no target", _DEPLOY)


def grade_kinds(rules: "Sequence[DescribeRuleResponseTypeDef]", *, objects: bool = True) -> Iterator[CheckResult]:
    """Yield a fault for each kind of event that no rule is there for.

    ``objects`` says whether there is a rule on objects in any case: with an existing bucket that notifies the queue
    there is none.
    """
    sources = {source for rule in rules for source in _pattern(rule).get("source", [])}
    for what, source in _WANTED.items():
        if source not in sources and (objects or source != _S3):
            yield RULES.fail(f"there is no rule for {what}", _DEPLOY)
    if not any(rule.get("ScheduleExpression") for rule in rules):
        yield RULES.fail("there is no rule for the tick every minute", _DEPLOY)


def check_pattern(site: Site) -> Iterator[CheckResult]:
    """Check by EventBridge's own matching whether a profile's object in the stack's bucket would be evaluated.

    That another one's do not was said before. An existing bucket that notifies the queue needs no rule.
    """
    if site.bucket != site.own_bucket:
        return
    patterns = [rule["EventPattern"] for rule in site.rules if _S3 in _pattern(rule).get("source", [])]
    if not patterns and not site.names("AWS::S3::Bucket"):
        return
    silent = [key for key in SAMPLE_KEYS if not any(_matches(site, pattern, key) for pattern in patterns)]
    faults = [
        PATTERN.fail(f"no rule matches s3://{site.bucket}/{key}", f"Such objects send no message. {_DEPLOY}")
        for key in silent
    ]
    yield from PATTERN.unless(
        faults, f"{counted(len(SAMPLE_KEYS), 'kind')} of objects in {site.bucket} would be evaluated"
    )


def take_objects(site: Site) -> bool:
    """Return whether the stack has rules on new objects."""
    return any(_S3 in _pattern(rule).get("source", []) for rule in site.rules)


def _matches(site: Site, pattern: str, key: str) -> bool:
    event = {
        "version": "0",
        "id": "00000000-0000-0000-0000-000000000000",
        "detail-type": "Object Created",
        "source": "aws.s3",
        "account": site.deployment.account,
        "time": datetime.fromtimestamp(site.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": site.deployment.region,
        "resources": [f"arn:{site.deployment.partition}:s3:::{site.bucket}"],
        "detail": {"bucket": {"name": site.bucket}, "object": {"key": key, "size": 1}, "reason": "PutObject"},
    }
    with asking("events:TestEventPattern"):
        answer = site.clients.events.test_event_pattern(EventPattern=pattern, Event=msgspec.json.encode(event).decode())
    return answer.get("Result", False)


def _pattern(rule: "DescribeRuleResponseTypeDef") -> Mapping[str, Any]:
    pattern: Mapping[str, Any] = msgspec.json.decode(rule.get("EventPattern") or "{}")
    return pattern
