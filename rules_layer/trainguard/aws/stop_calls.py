"""The calls that stop what a job runs on, and what tells that it has stopped."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from trainguard.aws.aws_errors import translated
from trainguard.aws.clients import Clients
from trainguard.aws.sagemaker import stop_training_job
from trainguard.core.errors import PortUnavailableError
from trainguard.stack.actions.cluster_agents import ClusterDesk, asked
from trainguard.stack.actions.request import FireInput, StopResult

if TYPE_CHECKING:
    from trainguard.stack.actions.stop_resources import ResourceDecision

_STOPPED_JOB = frozenset({"Stopping", "Stopped"})
_STOPPED_INSTANCE = frozenset({"stopping", "stopped"})
_ON_CLUSTER = frozenset({"workload", "node"})


class AwsStopCalls:
    """Stops by the services themselves, or by a cluster's agent; see `StopCalls`. ``now`` returns epoch seconds."""

    def __init__(self, clients: Clients, desk: ClusterDesk, now: Callable[[], float]) -> None:
        self._clients, self._desk, self._now = clients, desk, now

    def stop(self, fire: FireInput, decision: "ResourceDecision") -> StopResult:
        if decision.kind in _ON_CLUSTER:
            return asked(self._desk, fire, decision, self._now())
        if decision.kind == "batch-job":
            with translated("AWS Batch", "TerminateJob"):
                reason = f"TrainGuard: {fire.rule} fired"
                self._clients.batch.terminate_job(jobId=decision.resources[0], reason=reason)
        elif decision.kind == "instance":
            with translated("EC2", "StopInstances"):
                self._clients.ec2.stop_instances(InstanceIds=list(decision.resources))
        else:
            stop_training_job(self._clients.sagemaker, fire.job)
        return StopResult(made=True)

    def is_stopped(self, fire: FireInput, decision: "ResourceDecision") -> bool:
        if decision.kind in _ON_CLUSTER:
            answer = self._desk.answer(decision.resources[0].partition("/")[0], fire.fire_id)
            if answer is None or answer.stage == "begun":
                raise PortUnavailableError("the cluster's agent", "answer", "there is none yet")
            return answer.stage == "done"
        if decision.kind == "batch-job":
            with translated("AWS Batch", "DescribeJobs"):
                jobs = self._clients.batch.describe_jobs(jobs=decision.resources[:1]).get("jobs", [])
            return any(job.get("isTerminated") is True for job in jobs)
        if decision.kind == "instance":
            with translated("EC2", "DescribeInstances"):
                answer = self._clients.ec2.describe_instances(InstanceIds=list(decision.resources))
            held = [each for some in answer.get("Reservations", []) for each in some.get("Instances", [])]
            stopped = [each for each in held if each.get("State", {}).get("Name") in _STOPPED_INSTANCE]
            return len(stopped) == len(decision.resources)
        with translated("SageMaker", "DescribeTrainingJob"):
            job = self._clients.sagemaker.describe_training_job(TrainingJobName=fire.job)
        return job["TrainingJobStatus"] in _STOPPED_JOB and job["TrainingJobArn"] == fire.job_arn
