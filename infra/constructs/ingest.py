"""From a new profile object to a message in the evaluators' queue."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.encryption import own_key
from trainguard.engine.family import Family, ObjectEvents
from trainguard.families.installed import FAMILIES
from trainguard.records import FIRST_FAMILY

JOB_FILES = ObjectEvents(ends=("/job.json",))
"""The file by which a job outside SageMaker says what it is; it is of no family."""

_MOST_RECEIVES = 5
_DEAD_LETTER_DAYS = 14


class Ingest(Construct):
    """EventBridge rules for new objects, their queue, and the two queues for what could not be handled.

    Attributes
    ----------
    messages : aws_sqs.Queue
        One message for each new profile object, and the tasks that the functions set themselves.
    evaluation_dead_letters : aws_sqs.Queue
        Messages that no evaluator could handle.
    event_dead_letters : aws_sqs.Queue
        Events and notices that did not reach their target, and events whose function failed.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, config: DeploymentConfig, bucket_name: str, visibility_s: int
    ) -> None:
        super().__init__(scope, construct_id)
        self._key = own_key(self, config)
        self.evaluation_dead_letters = self._build_dead_letters("DoorbellDeadLetters")
        self.event_dead_letters = self._build_dead_letters("EventDeadLetters")
        self.evaluation_queue = sqs.Queue(
            self,
            "Doorbells",
            encryption=sqs.QueueEncryption.KMS if self._key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=self._key,
            enforce_ssl=True,
            visibility_timeout=Duration.seconds(visibility_s),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.evaluation_dead_letters, max_receive_count=_MOST_RECEIVES),
        )
        self._build_rules(bucket_name)

    def _build_dead_letters(self, construct_id: str) -> sqs.Queue:
        return sqs.Queue(
            self,
            construct_id,
            encryption=sqs.QueueEncryption.KMS if self._key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=self._key,
            enforce_ssl=True,
            retention_period=Duration.days(_DEAD_LETTER_DAYS),
        )

    def _build_rules(self, bucket_name: str) -> None:
        """Build one rule a family, so that no family's patterns make another's too complex, and one for job files."""
        rules = [self._build_rule("JobFileCreated", "each new job.json", JOB_FILES, bucket_name)]
        for family in FAMILIES:
            what = f"each new object of the family {family.name}"
            rules.append(self._build_rule(rule_id(family), what, family.events, bucket_name))
        # A statement for all rules: the policy of the dead letters takes ten conditions.
        for queue in (self.evaluation_queue, self.event_dead_letters):
            queue.add_to_resource_policy(
                iam.PolicyStatement(
                    sid="EventsOfTheRules",
                    principals=[iam.ServicePrincipal("events.amazonaws.com")],
                    actions=["sqs:SendMessage"],
                    resources=[queue.queue_arn],
                    conditions={"ArnEquals": {"aws:SourceArn": [rule.rule_arn for rule in rules]}},
                )
            )

    def _build_rule(self, construct_id: str, what: str, found: ObjectEvents, bucket_name: str) -> events.Rule:
        rule = events.Rule(
            self,
            construct_id,
            description=f"Sends TrainGuard a message for {what}",
            event_pattern=events.EventPattern(
                source=["aws.s3"],
                detail_type=["Object Created"],
                detail={
                    "bucket": {"name": [bucket_name]},
                    "object": {
                        "key": [
                            *({"wildcard": pattern} for pattern in found.wildcards),
                            *({"suffix": end} for end in found.ends),
                        ]
                    },
                },
            ),
        )
        # For a queue with a key of its own, CDK would let in rules of every account: the policies name these rules.
        queue = sqs.Queue.from_queue_arn(self, f"QueueOf{construct_id}", self.evaluation_queue.queue_arn)
        dead_letters = sqs.Queue.from_queue_arn(self, f"DeadLettersOf{construct_id}", self.event_dead_letters.queue_arn)
        rule.add_target(targets.SqsQueue(queue, dead_letter_queue=dead_letters))
        return rule


def rule_id(family: Family) -> str:
    """Return the construct id of a family's rule; the first family keeps the one from before there were families."""
    if family.name == FIRST_FAMILY:
        return "ProfileObjectCreated"
    return "".join(part.capitalize() for part in family.name.split("-")) + "ObjectCreated"
