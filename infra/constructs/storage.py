"""Storage of profiles and state: one bucket, the tables that people read, and one of bookkeeping."""

from collections.abc import Sequence
from typing import cast

from aws_cdk import Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IDependable

from infra.config import DeploymentConfig
from infra.constructs.encryption import own_key
from infra.constructs.function import removal_policy
from infra.constructs.policy import allow
from trainguard.aws.dynamodb.jobs import ACTIVE_JOBS_INDEX
from trainguard.aws.dynamodb.rule_states import BY_STATUS_COLUMNS, BY_STATUS_INDEX
from trainguard.core.canary_name import CANARY_PREFIX


class JobStorage(Construct):
    """Bucket and tables of jobs, rows and bookkeeping; ``bucket`` is None when the deployment uses an existing one."""

    def __init__(self, scope: Construct, config: DeploymentConfig) -> None:
        super().__init__(scope, "Storage")
        self.bucket = None if config.profile_bucket else self._build_bucket(config)
        self.bucket_name = self.bucket.bucket_name if self.bucket else str(config.profile_bucket)
        self.bucket_arn = f"arn:{Stack.of(self).partition}:s3:::{self.bucket_name}"
        self.jobs = self._build_table("Jobs", ("TrainingJobName",), config)
        self.jobs.add_global_secondary_index(
            index_name=ACTIVE_JOBS_INDEX,
            partition_key=_text("Active"),
            sort_key=_text("TrainingJobName"),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
            max_write_request_units=config.max_write_units,
        )
        self.rule_state = self._build_table("RuleState", ("TrainingJobName", "RuleTarget"), config)
        self.rule_state.add_global_secondary_index(
            index_name=BY_STATUS_INDEX,
            partition_key=_text("Status"),
            sort_key=_text("FiredAt"),
            projection_type=dynamodb.ProjectionType.INCLUDE,
            non_key_attributes=[*BY_STATUS_COLUMNS],
            max_write_request_units=config.max_write_units,
        )
        self.bookkeeping = self._build_table("Bookkeeping", ("Purpose", "Id"), config)
        self._tables = {
            "JOBS_TABLE": self.jobs,
            "RULE_STATE_TABLE": self.rule_state,
            "BOOKKEEPING_TABLE": self.bookkeeping,
        }

    def variables(self, *names: str) -> dict[str, str]:
        """Return variables of a function: ``<NAME>_TABLE`` of each table, and ``PROFILE_BUCKET``."""
        values = {name: table.table_name for name, table in self._tables.items()} | {"PROFILE_BUCKET": self.bucket_name}
        return {name: values[name] for name in names}

    def keep_books(
        self, sid: str, actions: Sequence[str], purposes: Sequence[str], table: str | None = None
    ) -> iam.PolicyStatement:
        """Let a role into the entries of these purposes alone, by default of this stack's table."""
        keys = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(purposes)}}
        return allow(sid, [f"dynamodb:{each}" for each in actions], [table or self.bookkeeping.table_arn], keys)

    def list_canaries(self) -> iam.PolicyStatement:
        canaries = {"StringLike": {"s3:prefix": f"{CANARY_PREFIX}*"}}
        return allow("ListCanaries", ["s3:ListBucket"], [self.bucket_arn], canaries)

    def send_new_objects(self, queue: sqs.IQueue, *, once: IDependable | None) -> None:
        """Have the dedicated bucket send a message to the queue for each new object.

        S3 tries the queue when the notification is configured: ``once`` is the queue's policy, which must not name the
        bucket. The methods of the L2 construct would deploy a custom resource.
        """
        to_queue = s3.CfnBucket.QueueConfigurationProperty(event="s3:ObjectCreated:*", queue=queue.queue_arn)
        self._notify(s3.CfnBucket.NotificationConfigurationProperty(queue_configurations=[to_queue]), once)

    def send_events(self) -> None:
        """Have the dedicated bucket send all of its events to EventBridge, without the L2 construct's resource."""
        enabled = s3.CfnBucket.EventBridgeConfigurationProperty(event_bridge_enabled=True)
        self._notify(s3.CfnBucket.NotificationConfigurationProperty(event_bridge_configuration=enabled), None)

    def _notify(self, configuration: s3.CfnBucket.NotificationConfigurationProperty, once: IDependable | None) -> None:
        resource = cast("s3.CfnBucket", cast("s3.Bucket", self.bucket).node.default_child)
        resource.notification_configuration = configuration
        if once:
            resource.node.add_dependency(once)

    def _build_bucket(self, config: DeploymentConfig) -> s3.Bucket:
        key = own_key(self, config)
        return s3.Bucket(
            self,
            "Profiles",
            encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=key,
            bucket_key_enabled=True if key else None,
            enforce_ssl=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            removal_policy=removal_policy(config),
            # A lifecycle filter knows prefixes only, and a job's name comes before `profiler-output/`: the whole
            # bucket, which holds nothing but profiles and their reports, expires together.
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="ExpireProfiles",
                    expiration=Duration.days(config.profile_retention_days),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
            ],
        )

    def _build_table(self, name: str, keys: tuple[str, ...], config: DeploymentConfig) -> dynamodb.Table:
        key = own_key(self, config)
        return dynamodb.Table(
            self,
            name,
            partition_key=_text(keys[0]),
            sort_key=_text(keys[1]) if len(keys) > 1 else None,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            max_write_request_units=config.max_write_units,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute="ExpiresAt",
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if key else None,
            encryption_key=key,
            removal_policy=removal_policy(config),
            deletion_protection=config.keeps_itself,
        )


class Storage(JobStorage):
    """What an account's stack keeps: also the state of nodes."""

    def __init__(self, scope: Construct, config: DeploymentConfig) -> None:
        super().__init__(scope, config)
        self.node_state = self._build_table("NodeState", ("TrainingJobName", "NodeKind"), config)
        self._tables["NODE_STATE_TABLE"] = self.node_state


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
