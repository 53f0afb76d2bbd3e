"""Where the objects of a job lie below the output: the layout that TrainGuard reads."""

import time


def system_key(job: str, node: str, minute: int) -> str:
    """Return the key of a node's minute; ``minute`` is its start in epoch seconds."""
    hour = time.strftime("%Y%m%d%H", time.gmtime(minute))
    return f"{job}/profiler-output/system/incremental/{hour}/{minute:010d}.{node}.json"


def end_key(job: str) -> str:
    """Return the key of the empty object that marks the end of the system metrics."""
    return f"{job}/profiler-output/system/training_job_end.ts"


def job_file_key(job: str) -> str:
    """Return the key of the file that describes a job outside SageMaker."""
    return f"{job}/job.json"


def status_folder(job: str) -> str:
    """Return the key prefix of the nodes' status objects."""
    return f"{job}/collector/"


def status_key(job: str, node: str) -> str:
    """Return the key of a node's status object."""
    return f"{status_folder(job)}{node}.status.json"
