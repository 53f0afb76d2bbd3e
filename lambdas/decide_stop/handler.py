"""Decides whether a fire may stop its training job."""

import os
import time
from dataclasses import asdict
from datetime import datetime
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.actions.stop import decide_stop
from trainguard.adapters.clients import Clients
from trainguard.adapters.environment import DecideStopEnvironment, load_environment
from trainguard.adapters.sagemaker import SageMakerTrainingJobs
from trainguard.adapters.ssm_stop_switch import SsmStopSwitch

logger = Logger()
environment = load_environment(DecideStopEnvironment, os.environ, function="decide_stop")
clients = Clients()
training_jobs = SageMakerTrainingJobs(client=clients.sagemaker)
switch = SsmStopSwitch(client=clients.ssm, parameter=environment.stop_switch_parameter)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with stop, decision and why; the log keeps every decision."""
    del context
    job = event["job"]
    fired_at = datetime.fromisoformat(event["firedAt"]).timestamp()
    decision = decide_stop(job, training_jobs.describe(job), switch.value(), fired_at=fired_at, now=time.time())
    logger.info("stop decision", extra={"job": job, "rule": event.get("rule"), **asdict(decision)})
    return asdict(decision)
