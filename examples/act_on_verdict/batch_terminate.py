"""Terminates running jobs of AWS Batch on which no GPU works, by TrainGuard's verdicts.

    python batch_terminate.py --queue gpus --queue gpus-spot

It looks at the jobs of the queues that carry the tag ``trainguard:stop-on-fire`` = ``allowed`` and no
``trainguard:stop-exempt``. The tag ``trainguard:job`` says how TrainGuard calls a job, else its name does. The role
needs ``batch:ListJobs``, ``batch:DescribeJobs`` and ``batch:TerminateJob``. TrainGuard can stop such jobs by itself:
docs/stopping.md. Exit code 1: a job could not be terminated.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import boto3
from asking import ask, is_idle
from botocore.exceptions import BotoCoreError, ClientError

ALLOWED, EXEMPT, JOB = "trainguard:stop-on-fire", "trainguard:stop-exempt", "trainguard:job"
REASON = "TrainGuard: no GPU of the job works"
_AT_ONCE = 100


def running(batch: Any, queue: str) -> Iterator[dict[str, Any]]:
    """Yield the running jobs of a queue, with their tags."""
    for page in batch.get_paginator("list_jobs").paginate(jobQueue=queue, jobStatus="RUNNING"):
        found = [each["jobId"] for each in page["jobSummaryList"]]
        for begin in range(0, len(found), _AT_ONCE):
            yield from batch.describe_jobs(jobs=found[begin : begin + _AT_ONCE])["jobs"]


def may_be_terminated(job: dict[str, Any]) -> bool:
    """Whether a job runs, and its owner has allowed it."""
    tags = job.get("tags", {})
    return job.get("status") == "RUNNING" and tags.get(ALLOWED) == "allowed" and EXEMPT not in tags


def main(words: list[str]) -> int:
    """Look at each job once; return the exit code."""
    parser = argparse.ArgumentParser(description="Terminate idle jobs of AWS Batch by TrainGuard's verdicts.")
    parser.add_argument("--queue", action="append", required=True, dest="queues", help="name or ARN of a job queue")
    parser.add_argument("--dry-run", action="store_true", help="say what would be terminated")
    asked = parser.parse_args(words)
    batch, code = boto3.client("batch"), 0
    for queue in asked.queues:
        try:
            for job in filter(may_be_terminated, running(batch, queue)):
                if not is_idle(ask(job.get("tags", {}).get(JOB, job["jobName"]))):
                    continue
                sys.stdout.write(f"{job['jobId']} {job['jobName']}: idle\n")
                if not asked.dry_run:
                    batch.terminate_job(jobId=job["jobId"], reason=REASON)
        except (BotoCoreError, ClientError) as fault:
            sys.stderr.write(f"{queue}: {fault}\n")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
