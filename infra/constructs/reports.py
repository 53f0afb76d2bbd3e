"""Reports: from state when a rule fires, and in full at a job's end or on request."""

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs import report_machine
from infra.constructs.function import FunctionPlatform, FunctionSpec, TrainGuardFunction
from infra.constructs.policy import allow
from infra.constructs.state_machine import state_machine
from infra.constructs.storage import Storage
from trainguard.engine.training.family import TRAINING_HEALTH

_REPORTS = "*/rule-output/TrainGuardReport/"
_PARTS = f"{_REPORTS}parts/*"
_KEYS = f"{_PARTS}/keys/*"
_RUN_PART = f"{_PARTS}/training.json"
_READ_BY_DIGESTS = ("*/profiler-output/*", *TRAINING_HEALTH.reads, _KEYS, _RUN_PART)


class Reports(Construct):
    """Three functions, one of which the fire path calls too, and the state machine that makes full reports of them."""

    def __init__(self, scope: Construct, construct_id: str, *, platform: FunctionPlatform, storage: Storage) -> None:
        super().__init__(scope, construct_id)
        self._platform = platform
        self._storage = storage
        self._tables = {
            "JOBS_TABLE": storage.jobs.table_name,
            "NODE_STATE_TABLE": storage.node_state.table_name,
        }
        self.plan_report = self._build_plan_report()
        self.digest_profile = self._build_digest_profile()
        self.build_report = self._build_build_report()
        # Its role names the machine itself, so that a Distributed Map may start its own executions.
        self.state_machine_name = f"{platform.config.stack_name}-Report"
        machine = state_machine(
            self,
            "Report",
            platform=platform,
            definition=report_machine.definition(),
            substitutions={
                "PlanReportArn": self.plan_report.function.function_arn,
                "DigestProfileArn": self.digest_profile.function.function_arn,
                "BuildReportArn": self.build_report.function.function_arn,
                "BuildFromStateArn": self.build_report.function.function_arn,
                "DropPartsArn": self.build_report.function.function_arn,
            },
            statements=self._machine_statements(),
            name=self.state_machine_name,
        )
        self.state_machine_arn = machine.attr_arn

    def _build_plan_report(self) -> TrainGuardFunction:
        return TrainGuardFunction(
            self,
            "PlanReport",
            platform=self._platform,
            spec=FunctionSpec(
                folder="plan_report",
                statements=[
                    *self._read_job(),
                    allow("ListHours", ["s3:ListBucket"], [self._storage.bucket_arn]),
                    allow("WriteItems", ["s3:PutObject"], [f"{self._storage.bucket_arn}/{_PARTS}"]),
                ],
                environment=self._tables,
                timeout_s=300,
                memory_mib=self._platform.config.plan_report_memory_mb,
            ),
        )

    def _build_digest_profile(self) -> TrainGuardFunction:
        return TrainGuardFunction(
            self,
            "DigestProfile",
            platform=self._platform,
            spec=FunctionSpec(
                folder="digest_profile",
                statements=[
                    allow(
                        "ReadProfileObjects",
                        ["s3:GetObject"],
                        [f"{self._storage.bucket_arn}/{objects}" for objects in _READ_BY_DIGESTS],
                    ),
                    allow("ListProfileObjects", ["s3:ListBucket"], [self._storage.bucket_arn]),
                    allow("WriteParts", ["s3:PutObject"], [f"{self._storage.bucket_arn}/{_PARTS}"]),
                ],
                environment={},
                timeout_s=900,
                memory_mib=self._platform.config.report_memory_mb,
            ),
        )

    def _build_build_report(self) -> TrainGuardFunction:
        bucket = self._storage.bucket_arn
        parts_only = {"StringLike": {"s3:prefix": _PARTS}}
        return TrainGuardFunction(
            self,
            "BuildReport",
            platform=self._platform,
            spec=FunctionSpec(
                folder="build_report",
                statements=[
                    *self._read_job(),
                    allow("WriteReport", ["s3:PutObject"], [f"{bucket}/{_REPORTS}*"]),
                    allow("ReadAndDeleteParts", ["s3:GetObject", "s3:DeleteObject"], [f"{bucket}/{_PARTS}"]),
                    allow("ListParts", ["s3:ListBucket"], [bucket], parts_only),
                ],
                environment=self._tables,
                timeout_s=600,
                memory_mib=self._platform.config.report_memory_mb,
            ),
        )

    def _read_job(self) -> list[iam.PolicyStatement]:
        return [
            allow("ReadJob", ["dynamodb:GetItem"], [self._storage.jobs.table_arn]),
            allow("ReadState", ["dynamodb:Query"], [self._storage.node_state.table_arn]),
        ]

    def _machine_statements(self) -> list[iam.PolicyStatement]:
        functions = (self.plan_report, self.digest_profile, self.build_report)
        name = self.state_machine_name
        executions = (f"{name}:*", f"{name}/{report_machine.MAP_LABEL}:*")
        return [
            allow("InvokeFunctions", ["lambda:InvokeFunction"], [part.function.function_arn for part in functions]),
            allow("ReadItems", ["s3:GetObject"], [f"{self._storage.bucket_arn}/{_PARTS}"]),
            allow("StartOwnMap", ["states:StartExecution"], [self._states_arn("stateMachine", name)]),
            allow(
                "FollowOwnMap",
                ["states:DescribeExecution", "states:StopExecution"],
                [self._states_arn("execution", each) for each in executions],
            ),
        ]

    def _states_arn(self, resource: str, name: str) -> str:
        return Stack.of(self).format_arn(
            service="states", resource=resource, resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
        )
