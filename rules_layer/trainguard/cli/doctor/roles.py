"""What the stack's own roles may do with the objects of the bucket, whoever asks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.simulation import denials
from trainguard.cli.doctor.site import Site
from trainguard.families.installed import FAMILIES
from trainguard.families.training.family import TRAINING_HEALTH
from trainguard.kernels.captures.keys import TRACE_READS
from trainguard.rules.units import counted

ROLES = Check("roles")

REPORT_MACHINE = "the report state machine"
KERNELS_MACHINE = "the kernels state machine"
MACHINES = {REPORT_MACHINE: "ReportStateMachineArn", KERNELS_MACHINE: "KernelsStateMachineArn"}
"""State machines whose roles use the bucket, with the outputs that name them."""

GET, PUT, DELETE, LIST = "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"

_READ = tuple(keys for family in FAMILIES for keys in family.reads)
_PROFILES = "*/profiler-output/*"
_JOB_FILES = "*/job.json"
_REPORTS = "*/rule-output/TrainGuardReport/*"
_PARTS = "*/rule-output/TrainGuardReport/parts/*"
_KERNELS = "*/rule-output/TrainGuardReport/kernels/*"
_NEWEST_CAPTURE = "*/rule-output/TrainGuardReport/kernels.*"
_CAPTURE_RUNS = "*/rule-output/TrainGuardReport/kernels/runs/*"
_CAPTURE_DIGESTS = "*/rule-output/TrainGuardReport/kernels/digests/*"
_CANARIES = "trainguard-canary-*"
_EXAMPLE = "trainguard-doctor"
"""What stands for any name where IAM is asked about one."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a role does to objects: actions, and the wildcard of the keys; actions on the bucket name prefixes so."""

    actions: tuple[str, ...]
    keys: str = "*"

    def resource(self, bucket_arn: str) -> str:
        """Return the ARN of an example of what is used."""
        return bucket_arn if self.actions == (LIST,) else f"{bucket_arn}/{self._example}"

    @property
    def context(self) -> Mapping[str, str]:
        """What a listing is asked with."""
        return {"s3:prefix": self._example} if self.actions == (LIST,) else {}

    @property
    def _example(self) -> str:
        return self.keys.replace("*", _EXAMPLE)


USES: Mapping[str, tuple[Use, ...]] = {
    "evaluate_objects": (*(Use((GET,), keys) for keys in _READ), Use((GET,), _JOB_FILES), Use((LIST,))),
    "look_after_job": (Use((GET,), _JOB_FILES), Use((LIST,))),
    "plan_report": (Use((PUT,), _PARTS), Use((LIST,))),
    "digest_profile": (
        Use((GET,), _PROFILES),
        *(Use((GET,), keys) for keys in TRAINING_HEALTH.reads),
        Use((GET,), f"{_PARTS}/keys/*"),
        Use((GET,), f"{_PARTS}/training.json"),
        Use((PUT,), _PARTS),
        Use((LIST,)),
    ),
    "build_report": (Use((PUT,), _REPORTS), Use((GET, DELETE), _PARTS), Use((LIST,), _PARTS)),
    "canary": (Use((PUT, DELETE), _CANARIES), Use((LIST,), _CANARIES)),
    "plan_capture": (Use((PUT,), _CAPTURE_RUNS), Use((LIST,))),
    "digest_trace": (*(Use((GET,), keys) for keys in TRACE_READS), Use((PUT,), _CAPTURE_DIGESTS), Use((LIST,))),
    "join_capture": (
        Use((GET, DELETE), _CAPTURE_RUNS),
        Use((GET, DELETE), _CAPTURE_DIGESTS),
        Use((PUT,), _KERNELS),
        Use((PUT,), _NEWEST_CAPTURE),
        Use((LIST,)),
    ),
    REPORT_MACHINE: (Use((GET,), _PARTS),),
    KERNELS_MACHINE: (Use((GET,), _CAPTURE_RUNS),),
}
"""What each role does in the bucket; roles that are not named here do nothing there."""


def roles_of(site: Site) -> Mapping[str, str]:
    """Return the ARNs of the deployed roles that use the bucket, by what they are called in `USES`."""
    functions = site.functions
    roles = {name: functions[name]["Role"] for name in USES if name in functions}
    for name, output in MACHINES.items():
        machine = site.deployment.output(output)
        with asking("states:DescribeStateMachine"):
            roles[name] = site.clients.stepfunctions.describe_state_machine(stateMachineArn=machine)["roleArn"]
    return roles


def check_roles(site: Site) -> Iterator[CheckResult]:
    """Judge whether the roles may do in the stack's bucket what they are for; another bucket is not theirs."""
    if site.bucket != site.own_bucket:
        return
    bucket_arn = f"arn:{site.deployment.partition}:s3:::{site.bucket}"
    faults: list[CheckResult] = []
    roles = roles_of(site)
    for name, role in roles.items():
        for use in USES[name]:
            for denial in denials(site, role, use.actions, use.resource(bucket_arn), use.context):
                where = site.bucket if use.keys == "*" else f"{use.keys} in {site.bucket}"
                faults.append(
                    ROLES.fail(
                        f"{name} may not {denial.action} on {where}: {denial.why}",
                        "Let it, as docs/permissions.md says, or deploy the stack again: `make deploy`.",
                    )
                )
    yield from ROLES.unless(faults, f"{counted(len(roles), 'role')} may do in {site.bucket} what they are for")
