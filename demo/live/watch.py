"""Looks at the deployed stack as its users do: tables, bucket, subscriber's queue, SageMaker."""

import json
from collections.abc import Mapping
from typing import Any

from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError

from demo.live.expect import JobSeen
from demo.live.feed import JobFeed, Progress
from demo.live.stage import Deployment
from trainguard.core.layout import ReportLinks, report_links

_DEAD_LETTER_QUEUES = ("DoorbellDeadLetterQueueUrl", "EventDeadLetterQueueUrl")
_MACHINES = ("FireStateMachineArn", "ReportStateMachineArn", "KernelsStateMachineArn")
_COUNTED = tuple(f"ApproximateNumberOfMessages{state}" for state in ("", "NotVisible", "Delayed"))


class Watcher:
    def __init__(self, deployment: Deployment) -> None:
        self.alerts: dict[str, list[Mapping[str, Any]]] = {}
        self._emulator = deployment.emulator
        self._outputs = deployment.outputs
        self._bucket = deployment.bucket
        self._alert_queue = deployment.alert_queue
        tables = deployment.emulator.resource("dynamodb")
        self._jobs = tables.Table(deployment.outputs["JobsTable"])
        self._nodes = tables.Table(deployment.outputs["NodeStateTable"])
        self._rules = tables.Table(deployment.outputs["RuleStateTable"])
        self._s3 = deployment.emulator.client("s3")
        self._sqs = deployment.emulator.client("sqs")
        self._sagemaker = deployment.emulator.client("sagemaker")
        self._executions = deployment.emulator.client("stepfunctions")

    def progress(self, job: str) -> Progress:
        items = self._nodes.query(
            KeyConditionExpression=Key("TrainingJobName").eq(job),
            ProjectionExpression="NodeKind, Cursors, EvaluatedThrough",
        )["Items"]
        through: dict[str, float] = {}
        cursors: dict[str, dict[str, int]] = {}
        for item in items:
            node, _, stream = item["NodeKind"].rpartition("#")
            partitions = {partition: int(position) for partition, position in item.get("Cursors", {}).items()}
            cursors.setdefault(node, {}).update(partitions)
            if stream == "system" and "EvaluatedThrough" in item:
                through[node] = float(item["EvaluatedThrough"])
        return Progress(system_through=through, cursors=cursors)

    def rows(self, job: str) -> dict[str, dict[str, Any]]:
        items = self._rules.query(KeyConditionExpression=Key("TrainingJobName").eq(job))["Items"]
        return {item["RuleTarget"]: item for item in items}

    def status(self, job: str) -> str:
        status: str = self._sagemaker.describe_training_job(TrainingJobName=job)["TrainingJobStatus"]
        return status

    def receive_alerts(self) -> list[Mapping[str, Any]]:
        """Return the alerts that came since the last call, as their documents."""
        answer = self._sqs.receive_message(QueueUrl=self._alert_queue, MaxNumberOfMessages=10, WaitTimeSeconds=0)
        documents = []
        for message in answer.get("Messages", []):
            self._sqs.delete_message(QueueUrl=self._alert_queue, ReceiptHandle=message["ReceiptHandle"])
            document = json.loads(message["Body"])
            self.alerts.setdefault(document["job"], []).append(document)
            documents.append(document)
        return documents

    def is_settled(self, jobs: list[str]) -> bool:
        """Whether every job is closed and nothing is under way: no message, no execution, no alert."""
        if any("Active" in self._job(job) for job in jobs):
            return False
        if self._waiting(self._outputs["DoorbellQueueUrl"]) or self._waiting(self._alert_queue):
            return False
        return not self._list_executions("RUNNING")

    def movement(self, jobs: list[str]) -> str:
        """Return what changes while anything goes on: items and rows of the jobs, queues, executions."""
        items = [self._nodes.query(KeyConditionExpression=Key("TrainingJobName").eq(job))["Items"] for job in jobs]
        versions = [(item["NodeKind"], str(item.get("Version"))) for of_job in items for item in of_job]
        rows = [(target, str(row)) for job in jobs for target, row in sorted(self.rows(job).items())]
        queues = [self._waiting(self._outputs[name]) for name in ("DoorbellQueueUrl", *_DEAD_LETTER_QUEUES)]
        executions = [sorted(self._list_executions(status)) for status in ("RUNNING", "SUCCEEDED")]
        alerts = sum(len(each) for each in self.alerts.values())
        return repr((versions, rows, [self._job(job) for job in jobs], queues, executions, alerts))

    def page(self, job: str) -> bytes | None:
        return self._object(self._links(job).page)

    def report(self, job: str) -> Mapping[str, Any] | None:
        body = self._object(self._links(job).document)
        found: Mapping[str, Any] | None = None if body is None else json.loads(body)
        return found

    def job(self, feed: JobFeed) -> JobSeen:
        links = self._links(feed.job)
        return JobSeen(
            job=feed.job,
            status=self.status(feed.job),
            cut_short=feed.stopped,
            alerts=tuple(self.alerts.get(feed.job, ())),
            stop_calls=tuple(self._emulator.sagemaker_calls(action="StopTrainingJob", job=feed.job)),
            rows=self.rows(feed.job),
            report=self.report(feed.job),
            report_uri=links.document,
            page_uri=links.page,
        )

    def failed_executions(self) -> list[str]:
        return [name for status in ("FAILED", "TIMED_OUT", "ABORTED") for name in self._list_executions(status)]

    def dead_letters(self) -> dict[str, int]:
        return {name: self._waiting(self._outputs[name]) for name in _DEAD_LETTER_QUEUES}

    def _job(self, job: str) -> dict[str, Any]:
        item: dict[str, Any] = self._jobs.get_item(Key={"TrainingJobName": job}).get("Item", {"Active": "not yet"})
        return item

    def _links(self, job: str) -> ReportLinks:
        return report_links(job=job, arn="", bucket=self._bucket, prefix="")

    def _object(self, uri: str) -> bytes | None:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        try:
            body: bytes = self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise
        return body

    def _waiting(self, queue_url: str) -> int:
        attributes = self._sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=list(_COUNTED))["Attributes"]
        return sum(int(attributes[name]) for name in _COUNTED)

    def _list_executions(self, status: str) -> list[str]:
        return [
            execution["name"]
            for machine in _MACHINES
            for execution in self._executions.list_executions(
                stateMachineArn=self._outputs[machine], statusFilter=status
            )["executions"]
        ]
