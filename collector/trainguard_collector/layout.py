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
    return f"{job}/collector/"


def status_key(job: str, node: str) -> str:
    return f"{status_folder(job)}{node}.status.json"


def timeline_key(process: str, node: str, end_us: int) -> str:
    """Return the key, below the job's folder, of a process's events up to ``end_us`` (epoch microseconds)."""
    hour = time.strftime("%Y%m%d%H", time.gmtime(end_us // 1_000_000))
    return f"profiler-output/framework/pevents/{hour}/{end_us:016d}_{process}-{node}_pythontimeline.json"


def stream_end_key(job: str, stream: str) -> str:
    """Return the key of the empty object that marks the end of ``framework`` events, or of tensors (``training``)."""
    folder = "debug-output" if stream == "training" else f"profiler-output/{stream}"
    return f"{job}/{folder}/training_job_end.ts"


def recorder_key(node: str, process: str) -> str:
    """Return the key, below the job's folder, of what a process's recorder says about itself."""
    return f"collector/{node}.{process}.recorder.json"


def hang_key(node: str, at: float, name: str) -> str:
    """Return the key, below the job's folder, of a dump or a stack of the standstill of ``at`` (epoch seconds)."""
    return f"hang-dumps/{node}/{time.strftime('%Y-%m-%dT%H-%M-%SZ', time.gmtime(at))}/{name}"
