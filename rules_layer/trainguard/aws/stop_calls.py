"""The calls that stop a training job, a job of AWS Batch or instances of EC2, and that check the stop."""

from trainguard.aws.aws_errors import translated
from trainguard.aws.clients import Clients
from trainguard.stack.actions.fire_row import Fire
from trainguard.stack.actions.stop_resources import ResourceDecision

_STOPPED_JOB = frozenset({"Stopping", "Stopped"})
_STOPPED_INSTANCE = frozenset({"stopping", "stopped"})


class AwsStopCalls:
    """Stops by the services themselves; see `StopCalls`."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def stop(self, fire: Fire, decision: ResourceDecision) -> None:
        if decision.kind == "batch-job":
            with translated("AWS Batch", "TerminateJob"):
                reason = f"TrainGuard: {fire.rule} fired"
                self._clients.batch.terminate_job(jobId=decision.resources[0], reason=reason)
        elif decision.kind == "instance":
            with translated("EC2", "StopInstances"):
                self._clients.ec2.stop_instances(InstanceIds=list(decision.resources))
        else:
            with translated("SageMaker", "StopTrainingJob"):
                self._clients.sagemaker.stop_training_job(TrainingJobName=fire.job)

    def is_stopped(self, fire: Fire, decision: ResourceDecision) -> bool:
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
