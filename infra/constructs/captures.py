"""Kernel profiles: captures of traces are judged by a state machine, when an evaluator asks for it."""

from functools import partial

from constructs import Construct

from infra.constructs import kernels_machine
from infra.constructs.function import Platform, TrainGuardFunction
from infra.constructs.policy import allow, training_jobs
from infra.constructs.state_machine import state_machine
from trainguard.kernels.captures.keys import TRACE_READS

REPORT = "*/rule-output/TrainGuardReport/"
KERNELS = f"{REPORT}kernels/*"
RUNS = f"{REPORT}kernels/runs/*"
DIGESTS = f"{REPORT}kernels/digests/*"
NEWEST = f"{REPORT}kernels.*"
# Disk of the function that reads traces: a database of Nsight Systems is copied there.
SCRATCH_MIB = 10_240


class Captures(Construct):
    """Three functions, and the state machine that judges captures with them."""

    def __init__(self, scope: Construct, platform: Platform) -> None:
        super().__init__(scope, "Captures")
        function = partial(TrainGuardFunction, self, platform=platform)
        bucket, queue = platform.storage.bucket_arn, platform.ingest.evaluation_queue
        plan_capture = function(
            "plan_capture",
            statements=[
                allow("ListTraces", ["s3:ListBucket"], [bucket]),
                allow("WriteLists", ["s3:PutObject"], [f"{bucket}/{RUNS}"]),
            ],
            timeout_s=300,
        )
        digest_trace = function(
            "digest_trace",
            statements=[
                allow("ReadTraces", ["s3:GetObject"], [f"{bucket}/{traces}" for traces in TRACE_READS]),
                allow("SayWhatIsGone", ["s3:ListBucket"], [bucket]),
                allow("WriteDigests", ["s3:PutObject"], [f"{bucket}/{DIGESTS}"]),
            ],
            timeout_s=900,
            memory_mib=platform.config.kernel_digest_memory_mb,
            scratch_mib=SCRATCH_MIB,
        )
        work = [f"{bucket}/{RUNS}", f"{bucket}/{DIGESTS}"]
        join_capture = function(
            "join_capture",
            statements=[
                allow("ReadAndDeleteDigests", ["s3:GetObject", "s3:DeleteObject"], work),
                allow("WriteCapture", ["s3:PutObject"], [f"{bucket}/{KERNELS}", f"{bucket}/{NEWEST}"]),
                # Without a condition on prefixes, else S3 answers 403 to a missing digest.
                allow("ListCaptures", ["s3:ListBucket"], [bucket]),
                allow("SendTask", ["sqs:SendMessage"], [queue.queue_arn]),
                allow("DescribeJob", ["sagemaker:DescribeTrainingJob"], [training_jobs(self)]),
            ],
            environment={"TASK_QUEUE_URL": queue.queue_url},
            timeout_s=900,
            memory_mib=platform.config.kernel_join_memory_mb,
        )
        self.functions = (plan_capture, digest_trace, join_capture)
        self.state_machine_arn = state_machine(
            self,
            "Kernels",
            platform=platform,
            definition=kernels_machine.definition(),
            functions=self.functions,
            statements=[allow("ReadItems", ["s3:GetObject"], [f"{bucket}/{RUNS}"])],
            map_label=kernels_machine.MAP_LABEL,
        ).attr_arn
