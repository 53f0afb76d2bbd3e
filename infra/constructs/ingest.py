"""From a new profile object to a message in the evaluators' queue."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.encryption import own_key

PROFILE_KEY_WILDCARDS = (
    "*/profiler-output/system/incremental/*.json",
    "*/profiler-output/framework/pevents/*.json",
)
PROFILE_KEY_ENDS = (
    ".metadata",
    "/profiler-output/system/training_job_end.ts",
    "/profiler-output/framework/training_job_end.ts",
    "/job.json",
)
"""How the keys look that ring: by wildcards, of which EventBridge takes few in a rule, and by their ends.

EventBridge refuses a rule when more than about ten beginnings of its wildcards could match one key at once; these two
make eight. The empty metadata of a detailed trace names its times and rings for it; ``job.json`` is the file by which a
job outside SageMaker says what it is.

They also match look-alikes such as ``…/rule-output/…/profiler-output/…``, which EventBridge cannot tell apart: the
key's grammar in the code has the last word.
"""

_MOST_RECEIVES = 5
_DEAD_LETTER_DAYS = 14


class Ingest(Construct):
    """The doorbell: EventBridge rule, queue, and the two queues for what could not be handled.

    Attributes
    ----------
    doorbells : aws_sqs.Queue
        One message for each new profile object, and the tasks that the functions set themselves.
    doorbell_dead_letters : aws_sqs.Queue
        Doorbells that no evaluator could handle.
    event_dead_letters : aws_sqs.Queue
        Events and notices that did not reach their target, and events whose function failed.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, config: DeploymentConfig, bucket_name: str, visibility_s: int
    ) -> None:
        super().__init__(scope, construct_id)
        self._key = own_key(self, config)
        self.doorbell_dead_letters = self._build_dead_letters("DoorbellDeadLetters")
        self.event_dead_letters = self._build_dead_letters("EventDeadLetters")
        self.doorbells = sqs.Queue(
            self,
            "Doorbells",
            encryption=sqs.QueueEncryption.KMS if self._key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=self._key,
            enforce_ssl=True,
            visibility_timeout=Duration.seconds(visibility_s),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.doorbell_dead_letters, max_receive_count=_MOST_RECEIVES),
        )
        self._build_rule(bucket_name)

    def _build_dead_letters(self, construct_id: str) -> sqs.Queue:
        return sqs.Queue(
            self,
            construct_id,
            encryption=sqs.QueueEncryption.KMS if self._key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=self._key,
            enforce_ssl=True,
            retention_period=Duration.days(_DEAD_LETTER_DAYS),
        )

    def _build_rule(self, bucket_name: str) -> None:
        rule = events.Rule(
            self,
            "ProfileObjectCreated",
            description="Rings TrainGuard's doorbell for each new object of a profile",
            event_pattern=events.EventPattern(
                source=["aws.s3"],
                detail_type=["Object Created"],
                detail={
                    "bucket": {"name": [bucket_name]},
                    "object": {
                        "key": [
                            *({"wildcard": pattern} for pattern in PROFILE_KEY_WILDCARDS),
                            *({"suffix": end} for end in PROFILE_KEY_ENDS),
                        ]
                    },
                },
            ),
        )
        # For a queue with a key of its own, CDK would let in rules of every account: this one says itself who may ring.
        queue = sqs.Queue.from_queue_arn(self, "RungQueue", self.doorbells.queue_arn)
        rule.add_target(targets.SqsQueue(queue, dead_letter_queue=self.event_dead_letters))
        self.doorbells.add_to_resource_policy(
            iam.PolicyStatement(
                sid="RingOfTheRule",
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[self.doorbells.queue_arn],
                conditions={"ArnEquals": {"aws:SourceArn": rule.rule_arn}},
            )
        )
