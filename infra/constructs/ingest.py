"""From a new profile object to a message in the evaluators' queue."""

from collections.abc import Mapping

from aws_cdk import Aws, Duration, Stack, Token
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IDependable

from infra.config import BY_QUEUE, DeploymentConfig
from infra.constructs.dead_letters import DeadLetters, let_send
from infra.constructs.encryption import own_key
from infra.constructs.storage import Storage
from trainguard.core.records import FIRST_FAMILY
from trainguard.engine.family import Family, ObjectEvents
from trainguard.engine.installed import FAMILIES

JOB_FILES = ObjectEvents(ends=("/job.json",))

_MOST_RECEIVES = 5


class Ingest(Construct):
    """The queue of new objects, its senders, and the two queues for what could not be handled.

    The stack's own bucket notifies the queue, at no cost. Events of an existing bucket, or for run files of Weights &
    Biases, come through EventBridge. Stacks with either way have the rules: no event is lost when a deployment changes
    from one to the other. Where an existing bucket notifies the queue there is no rule: each object would send two
    messages.

    Attributes
    ----------
    messages : aws_sqs.Queue
        One message for each new profile object, and the tasks that the functions set themselves.
    evaluation_dead_letters : DeadLetters
        Messages that no evaluator could handle.
    event_dead_letters : DeadLetters
        Events and notices that did not reach their target, and events whose function failed.
    """

    def __init__(self, scope: Construct, *, config: DeploymentConfig, storage: Storage, visibility_s: int) -> None:
        super().__init__(scope, "Ingest")
        key = own_key(self, config)
        self.evaluation_dead_letters = DeadLetters(self, "DoorbellDeadLetters", config)
        self.event_dead_letters = DeadLetters(self, "EventDeadLetters", config)
        self.evaluation_queue = sqs.Queue(
            self,
            "Doorbells",
            encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=key,
            enforce_ssl=True,
            visibility_timeout=Duration.seconds(visibility_s),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.evaluation_dead_letters, max_receive_count=_MOST_RECEIVES),
        )
        if config.profile_notifications == BY_QUEUE:
            self._let_s3_send("NewObjectsOfTheExistingBucket", {"ArnEquals": {"aws:SourceArn": storage.bucket_arn}})
            return
        rules = self._build_rules(storage.bucket_name)
        by_parameter = Token.is_unresolved(config.profile_bucket)
        if config.bucket_notifies_queue or by_parameter:
            # The rules name the bucket, and the bucket waits for this policy: it can name no rule.
            any_rule = Stack.of(self).format_arn(service="events", resource="rule", resource_name="*")
            let_send(self.evaluation_queue, "ArnLike", any_rule)
        else:
            let_send(self.evaluation_queue, "ArnEquals", [rule.rule_arn for rule in rules])
        if config.bucket_notifies_queue:
            # The bucket waits for this policy, which so cannot name it.
            storage.send_new_objects(self.evaluation_queue, once=self._let_s3_send("NewObjectsOfTheBucket", {}))
        elif storage.bucket:
            storage.send_events()

    def _build_rules(self, bucket_name: str) -> list[events.Rule]:
        """Build one rule a family, so that no family's patterns make another's too complex, and one for job files."""
        rules = [self._build_rule("JobFileCreated", "each new job.json", JOB_FILES, bucket_name)]
        for family in FAMILIES:
            what = f"each new object of the family {family.name}"
            rules.append(self._build_rule(rule_id(family), what, family.events, bucket_name))
        return rules

    def _let_s3_send(self, sid: str, source: Mapping[str, Mapping[str, str]]) -> IDependable | None:
        """Let S3 send for buckets of this account that meet the conditions; return what a bucket waits for."""
        return self.evaluation_queue.add_to_resource_policy(
            iam.PolicyStatement(
                sid=sid,
                principals=[iam.ServicePrincipal("s3.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[self.evaluation_queue.queue_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}, **source},
            )
        ).policy_dependable

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
        rule.add_target(targets.SqsQueue(queue, dead_letter_queue=self.event_dead_letters.of_rules))
        return rule


def rule_id(family: Family) -> str:
    """Return the construct id of a family's rule; the first family keeps the one from before there were families."""
    if family.name == FIRST_FAMILY:
        return "ProfileObjectCreated"
    return "".join(part.capitalize() for part in family.name.split("-")) + "ObjectCreated"
