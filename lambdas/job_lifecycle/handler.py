"""Follows the state changes of training jobs."""

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.environment import load_environment
from trainguard.aws.observability import PowertoolsJournal
from trainguard.aws.wiring import job_registry
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.lifecycle import follow_sagemaker, job_of

logger = Logger()
metrics = Metrics()
journal = PowertoolsJournal(logger=logger, metrics=metrics)
environment = load_environment(
    (
        "jobs_table",
        "node_state_table",
        "task_queue_url",
        "profile_bucket",
        "fire_state_machine_arn",
        "default_settings_parameter",
        "settings_path",
    ),
    function="job_lifecycle",
)
registry = job_registry(environment, clients=Clients(), journal=journal, families=FAMILIES)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Bring the job's item up to date; a store that does not answer makes the event be delivered again."""
    del context
    name = job_of(event, journal)
    record = None if name is None else follow_sagemaker(name, environment.profile_bucket, registry)
    return {"job": name, "followed": record is not None}
