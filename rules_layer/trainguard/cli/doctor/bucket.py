"""The bucket: there, in the stack's Region, and keeping its objects long enough."""

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.adapters.aws_errors import error_code
from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.site import Site
from trainguard.rules.units import counted

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import LifecycleRuleOutputTypeDef

BUCKET = Check("bucket")
LIFECYCLE = Check("lifecycle")

_NO_BUCKET = "NoSuchBucket"
_FEWEST_DAYS = 7
"""The report at a job's end reads its whole profile, and SageMaker lets a job run for days."""

_UNREADABLE = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes from which an object must be restored before it can be read."""


def check_bucket(site: Site) -> Iterator[CheckResult]:
    """Judge whether the bucket is there, and where."""
    bucket, region = site.bucket, site.deployment.region
    if bucket != site.own_bucket:
        yield BUCKET.fail(
            f"the stack listens to {site.own_bucket}, not to {bucket}",
            f"Deploy it with -c profile_bucket={shlex.quote(bucket)}, or let jobs write to s3://{site.own_bucket}/.",
        )
    with asking("s3:ListBucket"):
        try:
            lies_in = site.clients.s3.head_bucket(Bucket=bucket).get("BucketRegion", region)
        except ClientError as error:
            if error_code(error) not in {"404", _NO_BUCKET}:
                raise
            advice = "Is its name right? The stack's own bucket comes back with `make deploy`."
            yield BUCKET.fail(f"{bucket} does not exist", advice)
            return
    if lies_in != region:
        found = f"{bucket} lies in {lies_in}, the stack in {region}: its events do not arrive here"
        yield BUCKET.fail(found, f"Deploy a stack in {lies_in}, or use a bucket of {region}.")
    elif bucket == site.own_bucket:
        yield BUCKET.ok(f"{bucket} in {lies_in}")


def check_lifecycle(site: Site) -> Iterator[CheckResult]:
    """Judge for how long profiles and reports are kept; that there is no bucket was said before."""
    rules: Sequence[LifecycleRuleOutputTypeDef] = []
    with asking("s3:GetLifecycleConfiguration"):
        try:
            rules = site.clients.s3.get_bucket_lifecycle_configuration(Bucket=site.bucket)["Rules"]
        except ClientError as error:
            if error_code(error) == _NO_BUCKET:
                return
            if error_code(error) != "NoSuchLifecycleConfiguration":
                raise
    yield from grade_lifecycle(rules)


def grade_lifecycle(rules: "Sequence[LifecycleRuleOutputTypeDef]") -> Iterator[CheckResult]:
    """Judge a bucket's lifecycle rules, as far as they concern profiles and what lies under rule-output."""
    enabled = [rule for rule in rules if rule["Status"] == "Enabled"]
    whole = [rule for rule in enabled if _is_of_the_whole_bucket(rule)]
    faults: list[CheckResult] = []
    for rule in enabled:
        name = rule.get("ID", "without a name")
        days = rule.get("Expiration", {}).get("Days")
        if days is not None and days < _FEWEST_DAYS and rule in whole:
            found = f"rule {name} deletes profiles and reports after {counted(days, 'day')}"
            faults.append(
                LIFECYCLE.warn(found, "A long job's report cannot show its first days: keep them for longer.")
            )
        for kind in sorted({str(each.get("StorageClass")) for each in rule.get("Transitions", [])} & _UNREADABLE):
            found = f"rule {name} moves objects to {kind}, from where no report can read them"
            faults.append(LIFECYCLE.warn(found, "Use STANDARD_IA or GLACIER_IR, or spare profiler-output/."))
    yield from LIFECYCLE.unless(faults, _kept(whole, len(enabled) - len(whole)))


def _kept(whole: "Sequence[LifecycleRuleOutputTypeDef]", others: int) -> str:
    days = [rule["Expiration"]["Days"] for rule in whole if "Days" in rule.get("Expiration", {})]
    kept = f"profiles and reports are deleted after {counted(min(days), 'day')}" if days else "nothing is deleted"
    return f"{kept}; {counted(others, 'rule')} for a part of the bucket" if others else kept


def _is_of_the_whole_bucket(rule: "LifecycleRuleOutputTypeDef") -> bool:
    given = rule.get("Filter", {})
    return not rule.get("Prefix") and not any(value for value in given.values())
