"""Settings of a deployment: one validated object, read from CDK context."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, TypeVar

from infra.context import BOOLEAN, Form, ecr_image, integer, listed, matching, nearest, one_of

T = TypeVar("T")

STOP_SWITCH_VALUES = ("enabled", "dry-run", "disabled")
WEBHOOK_SERVICES = ("json", "slack", "pagerduty", "opsgenie")
# Stands among ``live_sources`` for run files of Weights & Biases in the bucket itself.
RUN_FILES = "wandb"

ALL_AT_ONCE = "AllAtOnce"
# Configurations of CodeDeploy without their common beginning. Alarms add up faults of a quarter of an hour.
GRADUALLY = (
    "Canary10Percent15Minutes",
    "Canary10Percent30Minutes",
    "Linear10PercentEvery3Minutes",
    "Linear10PercentEvery10Minutes",
)

BY_EVENTS: Literal["eventbridge"] = "eventbridge"
BY_QUEUE: Literal["queue"] = "queue"

# As many as the policy of a bucket holds in its 20 KiB.
MOST_WRITER_ACCOUNTS = 40

_PARTITION = r"aws[a-z-]*"
_REGION = r"[a-z]{2,}(-[a-z]+)+-\d"
_PATTERN = r"[A-Za-z0-9-]*\*[A-Za-z0-9*-]*"

BUCKET_NAME = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
EMAIL = r"[^@\s,]+@[^@\s,]+\.[^@\s,]+"
POLICY_ARN = rf"arn:{_PARTITION}:iam::(\d{{12}}|aws):policy/[\w+=,.@/-]{{1,512}}"

_MLFLOW_ARN = rf"arn:{_PARTITION}:sagemaker:{_REGION}:\d{{12}}:mlflow-(tracking-server|app)/[A-Za-z0-9-]{{1,256}}"
_URL = r"https?://[A-Za-z0-9.-]{1,253}(:\d{1,5})?(/[\w./~-]{0,500})?"

_SECRET = matching(
    rf"arn:{_PARTITION}:secretsmanager:{_REGION}:\d{{12}}:secret:[\w/+=.@-]{{1,512}}",
    "the ARN of a secret in Secrets Manager",
)
_KEY = matching(rf"arn:{_PARTITION}:kms:{_REGION}:\d{{12}}:key/[A-Za-z0-9-]+", "the ARN of a KMS key, not of an alias")
_MEMORY = integer(128, 10_240)
_EMAILS = listed(EMAIL, "addresses separated by commas")


class DeploymentConfigError(ValueError):
    """Context values that cannot be used, all of them at once."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("context of TrainGuard: " + "; ".join(faults))


def _set(default: T, form: Form) -> T:
    """Return a field with the form of its value in the context."""
    return field(default=default, metadata={"form": form})


@dataclass(frozen=True, slots=True)
class DeploymentConfig:
    """Settings of one deployment.

    Attributes
    ----------
    stack_name : str
        Name of the stack. Another name makes another stack: give it a bucket of its own.
    retain_data : bool
        Whether bucket, tables and logs outlive the stack.
    profile_bucket : str or None
        Existing bucket that profiles are written to; None makes one.
    profile_key_arn : str or None
        Its key, of another account maybe; None where S3 or AWS manages it, or ``kms_key_arn``.
    profile_notifications : {"eventbridge", "queue"}
        How the existing bucket announces new objects: by events, or by messages of its own to the evaluation queue.
    writer_accounts : tuple of str
        Other accounts whose jobs may write into the stack's own bucket, each below its id; at most 40.
    profile_retention_days, log_retention_days : int
        Expiry of objects in the stack's own bucket, reports included, and of logs.
    max_write_units : int
        Write request units a second that each table accepts.
    evaluator_concurrency : int
        Evaluators at once: 5 in a new account, which runs ten functions until AWS grants more.
    reconcile_concurrency : int or None
        Executions reserved for ``reconcile_job``: 20 serve a thousand small jobs; set it from a hundred on.
    evaluator_memory_mb, scheduler_memory_mb, reconcile_memory_mb, lifecycle_memory_mb : int
        Memory of ``evaluate_objects``, ``scheduler``, ``reconcile_job`` and ``job_lifecycle``, in MiB.
    plan_report_memory_mb, report_memory_mb : int
        Memory of ``plan_report``; of ``digest_profile`` and ``build_report``.
    kernel_digest_memory_mb, kernel_join_memory_mb : int
        Memory of ``digest_trace`` and ``join_capture``.
    alert_emails, operations_emails : tuple of str
        Subscribers of findings, and of alarms about TrainGuard.
    stop_switch : {"enabled", "dry-run", "disabled"}
        The stack's stop switch.
    max_stops_per_hour : int
        Training jobs stopped within an hour; 0 stops none.
    stop_budget_table : str or None
        ARN of another stack's Bookkeeping table, to share that limit.
    stop_limit_function : str or None
        ARN of the central account's function that admits stops; without its answer nothing is stopped.
    stop_batch_jobs, stop_instances : bool
        Whether fires may stop AWS Batch jobs and EC2 instances, where their tags allow it.
    stop_workloads, act_on_nodes : bool
        Whether fires may ask agents of clusters to stop workloads, and broken GPUs to act on nodes, where annotations
        allow it.
    evaluate : str or None
        Jobs to evaluate, in the first default settings: ``all``, ``tagged``, ``off``, or patterns of names. None is
        ``all`` with a bucket of the stack's own, and ``tagged`` with an existing one.
    evaluation_every_s : int or None
        Seconds between evaluations of a node without findings, 60 to 300, in them; None for 180.
    rules_package, prices : str or None
        Folder of custom rules, and file of a price table.
    rollout : str
        How new versions of the functions that evaluate rules take over: ``AllAtOnce``, or by CodeDeploy in steps, as
        ``Canary10Percent15Minutes``; then their alarms bring the earlier versions back.
    canary, canary_image : bool, str or None
        Whether a synthetic job a day tries the stack; the image in ECR, with ``sleep``, that makes it a training job.
    dashboard : bool
        A CloudWatch dashboard costs more than all the rest of an idle deployment.
    tracing : {"pass-through", "active"}
        ``active`` sends traces to X-Ray.
    verdict_endpoint : bool
        Whether the stack answers other programs over HTTPS what a job does, admitted by IAM.
    weekly_digest : bool
        Whether both topics get the waste of the week.
    webhook_secret : str or None
        ARN of a secret in Secrets Manager, a JSON object with the ``url`` that alerts are posted to, and its ``key``.
    webhook_service : {"json", "slack", "pagerduty", "opsgenie"}
        Whose format the posted alerts have; ``json`` is the alert's document.
    ops_items : bool
        Whether each broken GPU gets an OpsItem in OpsCenter.
    event_schemas : bool
        Whether EventBridge has a registry with the schemas of TrainGuard's events.
    live_sources : tuple of str
        Services that jobs may name as source, such as ``prometheus+https://host:9090``, ``logs`` and ``wandb``.
    live_source_secret : str or None
        ARN of a secret in Secrets Manager, a JSON object of tokens by host.
    kms_key_arn : str or None
        Key that encrypts bucket, tables, queues, topics and logs; None leaves that to keys that cost nothing.
    permissions_boundary : str or None
        ARN or name of the policy that bounds every role; what it lacks fails at run time.
    role_path : str or None
        Path of every role, such as ``/trainguard/``, for policies of an organisation.
    code_signing_config_arn : str or None
        Code signing configuration of every function; the assets are signed before they are uploaded.
    vpc_id : str or None
        Network in which the stack makes the functions' security group and gateway endpoints.
    subnet_ids, security_group_ids, route_table_ids : tuple of str
        No subnet means outside any VPC; no security group makes one; no route table means no gateway endpoint.
    central_bus_arn : str or None
        Event bus, of another account maybe, that gets all findings, and statements of jobs.
    organization_id : str or None
        Organisation whose accounts may send to the central stack, and write profiles as ``writer_accounts`` do.
    architecture : {"arm64", "x86_64"}
        Of the functions.
    emulator : bool
        Whether the stack is meant for an emulator on this machine (see `infra.overlay`).
    """

    # SSM keeps names of parameters that begin with aws or ssm for itself, and those of the stack begin with its name.
    stack_name: str = _set(
        "TrainGuard",
        matching(
            r"(?!(?i:aws|ssm))[A-Za-z][A-Za-z0-9-]{0,59}",
            "a letter, then up to 59 letters, digits and hyphens, not beginning with aws or ssm",
        ),
    )
    retain_data: bool = _set(True, BOOLEAN)
    profile_bucket: str | None = _set(None, matching(BUCKET_NAME, "the name of an existing S3 bucket"))
    profile_key_arn: str | None = _set(None, _KEY)
    profile_notifications: Literal["eventbridge", "queue"] = _set("eventbridge", one_of(BY_EVENTS, BY_QUEUE))
    writer_accounts: tuple[str, ...] = _set(
        (),
        listed(
            r"[0-9]{12}",
            f"at most {MOST_WRITER_ACCOUNTS} ids of accounts, of 12 digits each, separated by commas",
            most=MOST_WRITER_ACCOUNTS,
        ),
    )
    profile_retention_days: int = _set(30, integer(1, 3650))
    log_retention_days: int = _set(30, one_of(1, 3, 5, 7, 14, 30, 60, 90, 180, 365))
    max_write_units: int = _set(2000, integer(1, 40_000))
    evaluator_concurrency: int = _set(20, integer(2, 1000))
    reconcile_concurrency: int | None = _set(None, integer(1, 1000))
    evaluator_memory_mb: int = _set(1024, _MEMORY)
    scheduler_memory_mb: int = _set(512, _MEMORY)
    reconcile_memory_mb: int = _set(512, _MEMORY)
    lifecycle_memory_mb: int = _set(512, _MEMORY)
    plan_report_memory_mb: int = _set(1024, _MEMORY)
    report_memory_mb: int = _set(2048, _MEMORY)
    kernel_digest_memory_mb: int = _set(3008, _MEMORY)
    kernel_join_memory_mb: int = _set(2048, _MEMORY)
    alert_emails: tuple[str, ...] = _set((), _EMAILS)
    operations_emails: tuple[str, ...] = _set((), _EMAILS)
    stop_switch: Literal["enabled", "dry-run", "disabled"] = _set("enabled", one_of(*STOP_SWITCH_VALUES))
    max_stops_per_hour: int = _set(5, integer(0, 1000))
    stop_budget_table: str | None = _set(
        None,
        matching(
            rf"arn:{_PARTITION}:dynamodb:{_REGION}:\d{{12}}:table/[\w.-]{{3,255}}",
            "the ARN of another stack's Bookkeeping table",
        ),
    )
    stop_limit_function: str | None = _set(
        None,
        matching(
            rf"arn:{_PARTITION}:lambda:{_REGION}:\d{{12}}:function:[\w-]{{1,64}}",
            "the ARN of the central stack's StopLimitFunction",
        ),
    )
    stop_batch_jobs: bool = _set(False, BOOLEAN)
    stop_instances: bool = _set(False, BOOLEAN)
    stop_workloads: bool = _set(False, BOOLEAN)
    act_on_nodes: bool = _set(False, BOOLEAN)
    evaluate: str | None = _set(
        None,
        matching(
            rf"all|tagged|off|{_PATTERN}(,{_PATTERN})*",
            "all, tagged, off, or patterns such as prod-* separated by commas",
        ),
    )
    evaluation_every_s: int | None = _set(None, integer(60, 300))
    rules_package: str | None = _set(None, matching(r"\S(.*\S)?", "the folder of a Python package"))
    prices: str | None = _set(None, matching(r"\S(.*\S)?", "the file of a price table"))
    rollout: str = _set(ALL_AT_ONCE, one_of(ALL_AT_ONCE, *GRADUALLY))
    canary: bool = _set(True, BOOLEAN)
    canary_image: str | None = _set(None, ecr_image(slashes=True))
    dashboard: bool = _set(False, BOOLEAN)
    tracing: Literal["pass-through", "active"] = _set("pass-through", one_of("pass-through", "active"))
    verdict_endpoint: bool = _set(False, BOOLEAN)
    weekly_digest: bool = _set(False, BOOLEAN)
    webhook_secret: str | None = _set(None, _SECRET)
    webhook_service: Literal["json", "slack", "pagerduty", "opsgenie"] = _set("json", one_of(*WEBHOOK_SERVICES))
    ops_items: bool = _set(False, BOOLEAN)
    event_schemas: bool = _set(False, BOOLEAN)
    live_sources: tuple[str, ...] = _set(
        (),
        listed(
            rf"prometheus\+{_URL}|mlflow\+({_URL}|{_MLFLOW_ARN})|logs(\+/[\w./#-]{{1,500}})?|wandb",
            "services such as prometheus+https://host:9090, mlflow+https://host, logs and wandb, separated by commas",
        ),
    )
    live_source_secret: str | None = _set(None, _SECRET)
    kms_key_arn: str | None = _set(None, _KEY)
    permissions_boundary: str | None = _set(
        None, matching(rf"{POLICY_ARN}|[\w+=,.@/-]{{1,512}}", "the ARN or the name of an IAM policy")
    )
    role_path: str | None = _set(None, matching(r"/([\w+=,.@-]{1,64}/){1,7}", "a path such as /trainguard/"))
    code_signing_config_arn: str | None = _set(
        None,
        matching(
            rf"arn:{_PARTITION}:lambda:{_REGION}:\d{{12}}:code-signing-config:csc-[a-z0-9]{{17}}",
            "the ARN of a code signing configuration",
        ),
    )
    vpc_id: str | None = _set(None, matching(r"vpc-[0-9a-f]{8,17}", "the id of a VPC"))
    subnet_ids: tuple[str, ...] = _set((), listed(r"subnet-[0-9a-f]{8,17}", "ids of subnets separated by commas"))
    security_group_ids: tuple[str, ...] = _set(
        (), listed(r"sg-[0-9a-f]{8,17}", "ids of security groups separated by commas")
    )
    route_table_ids: tuple[str, ...] = _set(
        (), listed(r"rtb-[0-9a-f]{8,17}", "ids of route tables separated by commas")
    )
    central_bus_arn: str | None = _set(
        None,
        matching(
            rf"arn:{_PARTITION}:events:{_REGION}:\d{{12}}:event-bus/[\w./-]{{1,256}}",
            "the ARN of an EventBridge event bus",
        ),
    )
    organization_id: str | None = _set(None, matching(r"o-[a-z0-9]{10,32}", "the id of an organisation"))
    architecture: Literal["arm64", "x86_64"] = _set("arm64", one_of("arm64", "x86_64"))
    emulator: bool = _set(False, BOOLEAN)

    @property
    def keeps_itself(self) -> bool:
        """Whether stack and tables are protected from deletion."""
        return self.retain_data and not self.emulator

    @property
    def traced(self) -> bool:
        """Whether each invocation and execution sends a trace to X-Ray."""
        return self.tracing == "active"

    @property
    def gradual(self) -> bool:
        """Whether CodeDeploy moves calls from one version of a function to the next."""
        return self.rollout != ALL_AT_ONCE

    @property
    def bucket_notifies_queue(self) -> bool:
        """Whether the stack's own bucket sends the messages of new objects itself.

        Events of run files of Weights & Biases start a function through EventBridge; a bucket has both or one of them.
        """
        return self.profile_bucket is None and RUN_FILES not in self.live_sources

    @property
    def stoppable(self) -> tuple[str, ...]:
        """The kinds of resources beside training jobs that fires may stop."""
        chosen = {
            "batch-job": self.stop_batch_jobs,
            "instance": self.stop_instances,
            "workload": self.stop_workloads,
            "node": self.act_on_nodes,
        }
        return tuple(kind for kind, may in chosen.items() if may)

    @property
    def stoppable_by_aws(self) -> tuple[str, ...]:
        """Those that functions describe and stop themselves; the others are an agent's."""
        return tuple(kind for kind in self.stoppable if kind in {"batch-job", "instance"})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all settings, which are their names in the context."""
        return tuple(each.name for each in fields(cls))

    @classmethod
    def form(cls, setting: str) -> Form:
        found: Form = cls.__dataclass_fields__[setting].metadata["form"]
        return found

    @classmethod
    def from_context(cls, context: Mapping[str, object]) -> "DeploymentConfig":
        """Read the settings from all context values; raises DeploymentConfigError for all faults at once.

        ``-c`` gives text and ``cdk.json`` JSON values. A foreign name is ignored, unless it looks like a setting's.
        """
        meant = {name: nearest(name, cls.names()) for name in context}
        faults = [f"{name} is no setting, did you mean {ours}?" for name, ours in meant.items() if ours]
        return cls._read(context, faults)

    @classmethod
    def from_values(cls, given: Mapping[str, object], references: Collection[str] = ()) -> "DeploymentConfig":
        """Read the settings from values of Python, as `from_context`; those named by ``references`` are taken as is."""
        foreign = sorted(given.keys() - set(cls.names()))
        return cls._read(given, [f"{name} is no setting" for name in foreign], references)

    @classmethod
    def _read(
        cls, context: Mapping[str, object], foreign: list[str], references: Collection[str] = ()
    ) -> "DeploymentConfig":
        faults: list[str] = []
        values: dict[str, object] = {}
        for each in fields(cls):
            if (given := context.get(each.name)) is None:
                continue
            if each.name in references:
                values[each.name] = tuple(given) if isinstance(given, list) else given
                continue
            try:
                values[each.name] = each.metadata["form"].read(given)
            except ValueError as error:
                faults.append(f"{each.name} is {given!r}, expected {error}")
        faults += foreign
        chosen = {name for name in cls.names() if values.get(name, context.get(name))}
        faults += _faults_together(chosen, values)
        if faults:
            raise DeploymentConfigError(faults)
        return cls(**values)  # type: ignore[arg-type]  # each reader returns its field's type


def _faults_together(given: set[str], values: Mapping[str, object]) -> list[str]:
    """Return faults of settings that do not go together."""
    by_queue, sources = values.get("profile_notifications") == BY_QUEUE, values.get("live_sources")
    judged = {
        "profile_notifications needs profile_bucket: a bucket of the stack's own notifies the queue": (
            by_queue and "profile_bucket" not in given
        ),
        "profile_notifications=queue and wandb in live_sources: run files need the bucket's events": (
            by_queue and isinstance(sources, tuple) and RUN_FILES in sources
        ),
        "webhook_service needs webhook_secret: the address and the key of the webhook": (
            "webhook_service" in values and "webhook_secret" not in given
        ),
        "live_source_secret needs live_sources": "live_source_secret" in given and "live_sources" not in given,
        "profile_key_arn needs profile_bucket: kms_key_arn is the key of a bucket of the stack's own": (
            "profile_key_arn" in given and "profile_bucket" not in given
        ),
        "writer_accounts needs a bucket of the stack's own: the policy of profile_bucket is yours": (
            {"writer_accounts", "profile_bucket"} <= given
        ),
        "organization_id needs a bucket of the stack's own: the policy of profile_bucket is yours": (
            {"organization_id", "profile_bucket"} <= given
        ),
        "subnet_ids needs security_group_ids, or vpc_id to make a security group in": (
            "subnet_ids" in given and not given & {"vpc_id", "security_group_ids"}
        ),
        "canary_image needs the canary": "canary_image" in given and values.get("canary") is False,
        "security_group_ids needs subnet_ids": "security_group_ids" in given and "subnet_ids" not in given,
        "route_table_ids needs vpc_id": "route_table_ids" in given and "vpc_id" not in given,
        "vpc_id needs subnet_ids or route_table_ids": given & {"vpc_id", "subnet_ids", "route_table_ids"} == {"vpc_id"},
    }
    return [fault for fault, is_there in judged.items() if is_there]
