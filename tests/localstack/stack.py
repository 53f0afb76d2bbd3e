"""The deployed stack as the tests use it: jobs that upload recordings, and all that can be seen of them."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.live.feed import JobFeed
from demo.live.stage import Deployment, subscribe
from demo.live.watch import Watcher
from demo.recording import Recording
from infra.constructs.evaluation import MESSAGE_VISIBILITY_S
from tests.localstack.emulator_kit import invoke, until, zipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from emulator.launch import Emulator

EVENTS = Path(__file__).parents[2] / "events"
LAMBDAS = Path(__file__).parents[2] / "lambdas"
STACK = "TrainGuard"
QUIET_LOOKS = 3
# What is waited for comes within seconds on an idle machine; two cores that run other tests take minutes.
#
# A message whose evaluation failed once comes back when its visibility is over, and is evaluated then.
PATIENCE_S = MESSAGE_VISIBILITY_S + 120.0

_VERDICT = ("Status", "Measured", "Worst", "DataPoints", "Violations", "TimesFired", "EvaluatedThrough", "FiredAt")

# Settings of every job: with patience in seconds a running job is judged before it is ten minutes old.
SOON = {"CPUBottleneck_patience_s": "50"}
# Settings of a job that may be stopped: the recordings fire Dataloader, too, soon before or after.
STOPS = {"stop-rules": "CPUBottleneck"}


WEBHOOK_KEY = "routing-key-of-32-characters-000"


class Posts:
    """A server on this machine that takes what is posted: headers and bodies, in ``taken``."""

    def __init__(self) -> None:
        self.taken: list[tuple[dict[str, str], Any]] = []
        taken = self.taken

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                taken.append((dict(self.headers), json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                self.send_response(202)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}/v2/enqueue"


def subscribed(emulator: Emulator, outputs: Mapping[str, str], name: str) -> Stack:
    """Return the stack of that name and these outputs, with a queue that gets its alerts."""
    queue = subscribe(emulator, outputs["AlertTopicArn"], f"alerts-of-{name}")
    return Stack(Deployment(emulator=emulator, outputs=outputs, alert_queue=queue), name)


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a state machine."""

    name: str
    status: str
    cause: str


class Stack:
    """The deployed stack.

    Attributes
    ----------
    posts
        What its webhook posts, where it has one.
    functions
        Name of each deployed function by its folder in ``lambdas/``.
    """

    def __init__(self, deployment: Deployment, name: str = STACK) -> None:
        self.name = name
        self.posts: Posts | None = None
        self.deployment = deployment
        self.emulator = deployment.emulator
        self.outputs = deployment.outputs
        self.watcher = Watcher(deployment)
        self.functions = {
            function["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]: function["FunctionName"]
            for function in self.emulator.client("lambda").list_functions()["Functions"]
            if function["FunctionName"].startswith(f"{name}-")
        }

    def invoke(self, folder: str, event: object) -> Any:
        """Invoke a function by its folder and return its result; a function that raised fails the test."""
        result, error = invoke(self.emulator, self.functions[folder], event)
        assert error is None, result
        return result

    @contextmanager
    def doorbells_off(self) -> Iterator[None]:
        """Let objects appear in the bucket without any event, for the time of a ``with`` block."""
        s3, bucket = self.emulator.client("s3"), self.deployment.bucket
        before = s3.get_bucket_notification_configuration(Bucket=bucket)
        before.pop("ResponseMetadata")
        assert "QueueConfigurations" in before
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
        try:
            yield
        finally:
            s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=before)

    @contextmanager
    def clock_off(self) -> Iterator[None]:
        """Let no minute tick for the time of a ``with`` block.

        The schedule's target is taken away: LocalStack's DisableRule does not silence a schedule. It keeps the old
        timer when the target is put back, so that afterwards each minute ticks twice.
        """
        resources = self.emulator.client("cloudformation").describe_stack_resources(StackName=self.name)[
            "StackResources"
        ]
        rules = [each["PhysicalResourceId"] for each in resources if each["ResourceType"] == "AWS::Events::Rule"]
        events = self.emulator.client("events")
        schedules = {rule: events.describe_rule(Name=rule).get("ScheduleExpression", "") for rule in rules}
        (clock,) = [rule for rule, schedule in schedules.items() if schedule.startswith("rate(")]
        targets = events.list_targets_by_rule(Rule=clock)["Targets"]
        events.remove_targets(Rule=clock, Ids=[target["Id"] for target in targets])
        try:
            yield
        finally:
            events.put_targets(Rule=clock, Targets=targets)

    @contextmanager
    def function_replaced(self, folder: str, source: str) -> Iterator[None]:
        """Let a function run ``source`` in place of its own code for the time of a ``with`` block.

        Its own code is the module ``trainguard_handler`` for that time.
        """
        self._put_code(folder, source)
        try:
            yield
        finally:
            self._put_code(folder, LAMBDAS / folder / "handler.py")

    def _put_code(self, folder: str, handler: str | Path) -> None:
        client, name = self.emulator.client("lambda"), self.functions[folder]
        files = {"handler.py": handler, "trainguard_handler.py": LAMBDAS / folder / "handler.py"}
        client.update_function_code(FunctionName=name, ZipFile=zipped(files))
        until(
            lambda: client.get_function_configuration(FunctionName=name)["LastUpdateStatus"] == "Successful",
            timeout_s=PATIENCE_S,
            what=f"the update of {folder}",
        )
        if aliases := client.list_aliases(FunctionName=name)["Aliases"]:
            version = client.publish_version(FunctionName=name)["Version"]
            client.update_alias(FunctionName=name, Name=aliases[0]["Name"], FunctionVersion=version)
            until(
                lambda: client.get_function(FunctionName=name, Qualifier=version)["Configuration"]["State"] == "Active",
                timeout_s=PATIENCE_S,
                what=f"version {version} of {folder}",
            )

    @contextmanager
    def without_topic(self, output: str) -> Iterator[None]:
        """Let a topic, named by its output, be gone for the time of a ``with`` block; its subscribers come back."""
        sns, topic = self.emulator.client("sns"), self.outputs[output]
        subscriptions = [
            sns.get_subscription_attributes(SubscriptionArn=each["SubscriptionArn"])["Attributes"] | each
            for each in sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
        ]
        sns.delete_topic(TopicArn=topic)
        try:
            yield
        finally:
            assert sns.create_topic(Name=topic.rpartition(":")[2])["TopicArn"] == topic
            for each in subscriptions:
                kept = {name: each[name] for name in ("RawMessageDelivery", "FilterPolicy") if name in each}
                sns.subscribe(TopicArn=topic, Protocol=each["Protocol"], Endpoint=each["Endpoint"], Attributes=kept)

    def announce(self, body: str) -> None:
        """Put a message into the evaluation queue."""
        self.emulator.client("sqs").send_message(QueueUrl=self.outputs["DoorbellQueueUrl"], MessageBody=body)

    def await_quiet(self) -> None:
        """Wait until no message, no execution and no alert is under way, several looks in a row."""
        looks = 0

        def quiet() -> bool:
            nonlocal looks
            self.watcher.receive_alerts()
            looks = looks + 1 if self.watcher.is_settled([]) else 0
            return looks >= QUIET_LOOKS

        until(quiet, timeout_s=PATIENCE_S, what="a stack in which nothing is under way")

    def start_execution(self, name: str, payload: Mapping[str, object]) -> Execution:
        """Start an execution of the fire state machine as an outbox would, and return it when it has ended."""
        return self.run_machine(self.outputs["FireStateMachineArn"], name, payload)

    def run_machine(self, machine: str, name: str, payload: Mapping[str, object]) -> Execution:
        """Start an execution of a state machine by its ARN, and return it when it has ended."""
        client = self.emulator.client("stepfunctions")
        arn = client.start_execution(stateMachineArn=machine, name=name, input=json.dumps(payload))["executionArn"]

        def ended() -> dict[str, Any] | None:
            described: dict[str, Any] = client.describe_execution(executionArn=arn)
            return None if described["status"] == "RUNNING" else described

        described = until(ended, timeout_s=PATIENCE_S, what=f"the end of execution {name}")
        return Execution(name, described["status"], described.get("cause", ""))

    def await_ended(self, part: str, machine: str = "FireStateMachineArn") -> list[Execution]:
        """Return the executions of a machine whose name contains ``part``, when there are some and all have ended."""

        def ended() -> list[Execution]:
            found = self.executions(part, machine)
            return [] if any(each.status == "RUNNING" for each in found) else found

        return until(ended, timeout_s=PATIENCE_S, what=f"the end of executions {part}")

    def executions(self, part: str, machine: str = "FireStateMachineArn") -> list[Execution]:
        """Return the executions of a machine, named by its output, whose name contains ``part``."""
        client = self.emulator.client("stepfunctions")
        listed = client.list_executions(stateMachineArn=self.outputs[machine], maxResults=1000)
        found = []
        for each in listed["executions"]:
            if part in each["name"]:
                described = client.describe_execution(executionArn=each["executionArn"])
                found.append(Execution(each["name"], described["status"], described.get("cause", "")))
        return found

    def table(self, name: str) -> Any:
        """Return a table by the name of its output."""
        return self.emulator.resource("dynamodb").Table(self.outputs[name])


class Job:
    """One training job that uploads a recording.

    Parameters
    ----------
    stack
        Where it runs.
    recording
        Name of the recorded job.
    name
        The job's name.
    start
        Epoch second at which it starts; as late as its end lies in the past if not given.
    allowed
        Whether TrainGuard may stop it.
    tags
        Tags ``trainguard:<name>`` beside those that make its rules fire soon.
    """

    def __init__(
        self,
        stack: Stack,
        recording: str,
        name: str,
        *,
        start: int | None = None,
        allowed: bool = False,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.stack = stack
        self.name = name
        recorded = Recording.load(EVENTS / "jobs" / f"{recording}.npz")
        begin = (int(time.time()) // 60 - int(recorded.ended_s // 60) - 2) * 60 if start is None else start
        self.feed = JobFeed(job=name, recording=recorded, start=begin)
        self._s3 = stack.emulator.client("s3")
        self._create(allowed, {**SOON, **(STOPS if allowed else {}), **(tags or {})})

    def _create(self, allowed: bool, settings: Mapping[str, str]) -> None:
        self.stack.deployment.create_training_job(self.feed, may_be_stopped=allowed, settings=settings)

    def upload(self, *, until_minute: float) -> list[str]:
        """Upload what the job writes up to that minute; return the keys."""
        return self.upload_while(lambda at: at <= until_minute * 60)

    def upload_rest(self) -> list[str]:
        """Upload all that is left; return the keys."""
        return self.upload_while(lambda _: True)

    def upload_while(self, may: Callable[[float], bool]) -> list[str]:
        """Upload while ``may`` agrees to the seconds since the start; return the keys."""
        keys = []
        while self.feed.upcoming is not None and may(self.feed.upcoming.appears_at - self.feed.start):
            uploaded = self.feed.take()
            self._s3.put_object(Bucket=self.stack.deployment.bucket, Key=uploaded.key, Body=uploaded.body)
            keys.append(uploaded.key)
        return keys

    def finish(self, status: str = "Completed") -> None:
        """Let the training end by itself."""
        self.stack.emulator.finish_training_job(self.name, status=status)

    def end(self) -> None:
        """Let the job end where it is, with the files that a job writes last, and wait until TrainGuard is done."""
        self.feed.stop()
        self.upload_rest()
        self.finish()
        self.await_closed()

    def await_closing(self) -> None:
        """Wait until TrainGuard knows that the job has ended: from then on no look sends anything more of a finding."""
        until(lambda: self.item().get("Closing"), timeout_s=PATIENCE_S, what=f"{self.name} closing")

    def await_closed(self) -> None:
        """Wait until TrainGuard is done with the job."""
        until(lambda: self.item() and "Active" not in self.item(), timeout_s=PATIENCE_S, what=f"{self.name} closed")
        self.stack.await_quiet()

    def await_row(self, target: str, *, timeout_s: float = PATIENCE_S, **columns: object) -> dict[str, Any]:
        """Wait until a row has these values; columns whose value is None need only be there."""

        def matching() -> dict[str, Any] | None:
            row = self.rows().get(target, {})
            matches = all(name in row and value in {None, row[name]} for name, value in columns.items())
            return row if row and matches else None

        return until(matching, timeout_s=timeout_s, what=f"{self.name}: {target} with {columns}")

    def await_applied(self, keys: Sequence[str]) -> None:
        """Wait until all minutes among ``keys`` are applied; framework events wait for two minutes more."""
        minutes = [key for key in keys if "/system/incremental/" in key]
        until(
            lambda: self.stack.watcher.progress(self.name).applied(minutes) == len(minutes),
            timeout_s=PATIENCE_S,
            what=f"{len(minutes)} minutes of {self.name} applied",
        )

    def verdicts(self) -> dict[str, object]:
        """Return all that must not depend on how messages came: state, cursors, rows without what time it is."""
        seen: dict[str, object] = {}
        for node_kind in ("algo-1#system", "algo-1#framework"):
            node = self.node(node_kind)
            seen[node_kind] = (node["Window"].value, node["Cursors"], node["Pending"], node["Closed"])
        for target, row in self.rows().items():
            seen[target] = tuple(row.get(name) for name in _VERDICT)
        return seen

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the job's rows of RuleState by RuleTarget."""
        return self.stack.watcher.rows(self.name)

    def item(self) -> dict[str, Any]:
        """Return the job's item of Jobs."""
        item: dict[str, Any] = (
            self.stack.table("JobsTable").get_item(Key={"TrainingJobName": self.name}).get("Item", {})
        )
        return item

    def node(self, node_kind: str) -> dict[str, Any]:
        """Return an item of NodeState."""
        key = {"TrainingJobName": self.name, "NodeKind": node_kind}
        item: dict[str, Any] = self.stack.table("NodeStateTable").get_item(Key=key).get("Item", {})
        return item

    def fires(self, rule: str) -> list[Execution]:
        """Return the executions that handled a fire of a rule, not those of its follow-ups."""
        fire = re.compile(rf"{rule}-[0-9a-f]{{20}}-{re.escape(self.name[:40])}")
        return [each for each in self.stack.executions(self.name[:40]) if fire.match(each.name)]

    def reports(self) -> list[Execution]:
        """Return the executions that made a report of the job, but for those of its fires."""
        fires = {each.name for each in self.stack.executions(self.name[:40])}
        made = self.stack.executions(self.name[:40], "ReportStateMachineArn")
        return [each for each in made if each.name not in fires]

    def alerts(self, rule: str) -> list[Mapping[str, Any]]:
        """Return the alerts of a rule that were received."""
        self.stack.watcher.receive_alerts()
        return [alert for alert in self.stack.watcher.alerts.get(self.name, []) if alert["rule"] == rule]

    def stops(self) -> list[str | None]:
        """Return the error of each StopTrainingJob call; None for one that was accepted."""
        calls = self.stack.emulator.sagemaker_calls(action="StopTrainingJob", job=self.name)
        return [call["error"] for call in calls]

    def status(self) -> str:
        """Return TrainingJobStatus."""
        return self.stack.watcher.status(self.name)

    def report(self) -> Mapping[str, Any] | None:
        """Return the report in the bucket."""
        return self.stack.watcher.job(self.feed).report
