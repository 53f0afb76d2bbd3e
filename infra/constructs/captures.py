"""Kernel profiles: captures of traces are judged by a state machine, when an evaluator asks for it."""

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs import kernels_machine
from infra.constructs.function import FunctionPlatform, FunctionSpec, TrainGuardFunction
from infra.constructs.policy import allow, training_jobs
from infra.constructs.state_machine import state_machine
from infra.constructs.storage import Storage
from trainguard.kernels.captures.keys import TRACE_READS

REPORT = "*/rule-output/TrainGuardReport/"
KERNELS = f"{REPORT}kernels/*"
RUNS = f"{REPORT}kernels/runs/*"
DIGESTS = f"{REPORT}kernels/digests/*"
NEWEST = f"{REPORT}kernels.*"
SCRATCH_MIB = 10_240
"""Disk of the function that reads traces: a database of Nsight Systems is copied there."""


class Captures(Construct):
    """Three functions, and the state machine that judges captures with them."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        platform: FunctionPlatform,
        storage: Storage,
        task_queue: sqs.Queue,
    ) -> None:
        super().__init__(scope, construct_id)
        self._platform = platform
        self._bucket = storage.bucket_arn
        self.plan_capture = self._build_plan_capture()
        self.digest_trace = self._build_digest_trace()
        self.join_capture = self._build_join_capture(task_queue)
        # Its role names the machine itself, so that a Distributed Map may start its own executions.
        self.state_machine_name = f"{platform.config.stack_name}-Kernels"
        machine = state_machine(
            self,
            "Kernels",
            platform=platform,
            definition=kernels_machine.definition(),
            substitutions={
                "PlanCaptureArn": self.plan_capture.function.function_arn,
                "DigestTraceArn": self.digest_trace.function.function_arn,
                "JoinCaptureArn": self.join_capture.function.function_arn,
            },
            statements=self._machine_statements(),
            name=self.state_machine_name,
        )
        self.state_machine_arn = machine.attr_arn

    @property
    def functions(self) -> tuple[TrainGuardFunction, ...]:
        """The functions."""
        return (self.plan_capture, self.digest_trace, self.join_capture)

    def _build_plan_capture(self) -> TrainGuardFunction:
        return TrainGuardFunction(
            self,
            "PlanCapture",
            platform=self._platform,
            spec=FunctionSpec(
                folder="plan_capture",
                statements=[
                    allow("ListTraces", ["s3:ListBucket"], [self._bucket]),
                    allow("WriteLists", ["s3:PutObject"], [f"{self._bucket}/{RUNS}"]),
                ],
                environment={},
                timeout_s=300,
                memory_mib=512,
            ),
        )

    def _build_digest_trace(self) -> TrainGuardFunction:
        return TrainGuardFunction(
            self,
            "DigestTrace",
            platform=self._platform,
            spec=FunctionSpec(
                folder="digest_trace",
                statements=[
                    allow("ReadTraces", ["s3:GetObject"], [f"{self._bucket}/{traces}" for traces in TRACE_READS]),
                    allow("SayWhatIsGone", ["s3:ListBucket"], [self._bucket]),
                    allow("WriteDigests", ["s3:PutObject"], [f"{self._bucket}/{DIGESTS}"]),
                ],
                environment={},
                timeout_s=900,
                memory_mib=self._platform.config.kernel_digest_memory_mb,
                scratch_mib=SCRATCH_MIB,
            ),
        )

    def _build_join_capture(self, task_queue: sqs.Queue) -> TrainGuardFunction:
        bucket = self._bucket
        work = [f"{bucket}/{RUNS}", f"{bucket}/{DIGESTS}"]
        return TrainGuardFunction(
            self,
            "JoinCapture",
            platform=self._platform,
            spec=FunctionSpec(
                folder="join_capture",
                statements=[
                    allow("ReadAndDeleteDigests", ["s3:GetObject", "s3:DeleteObject"], work),
                    allow("WriteCapture", ["s3:PutObject"], [f"{bucket}/{KERNELS}", f"{bucket}/{NEWEST}"]),
                    # Without a condition on prefixes, else S3 answers 403 to a missing digest.
                    allow("ListCaptures", ["s3:ListBucket"], [bucket]),
                    allow("SendTask", ["sqs:SendMessage"], [task_queue.queue_arn]),
                    allow("DescribeJob", ["sagemaker:DescribeTrainingJob"], [training_jobs(self)]),
                ],
                environment={"TASK_QUEUE_URL": task_queue.queue_url},
                timeout_s=900,
                memory_mib=self._platform.config.kernel_join_memory_mb,
            ),
        )

    def _machine_statements(self) -> list[iam.PolicyStatement]:
        name = self.state_machine_name
        executions = (f"{name}:*", f"{name}/{kernels_machine.MAP_LABEL}:*")
        return [
            allow(
                "InvokeFunctions", ["lambda:InvokeFunction"], [part.function.function_arn for part in self.functions]
            ),
            allow("ReadItems", ["s3:GetObject"], [f"{self._bucket}/{RUNS}"]),
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
