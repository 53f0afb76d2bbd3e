"""Brings nodes up to date for a batch of messages."""

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.environment import EVALUATION, load_environment
from trainguard.aws.fault_points import LateVerdicts
from trainguard.aws.function_limits import lambda_timing
from trainguard.aws.observability import PowertoolsJournal
from trainguard.aws.sqs import batch_response, messages_of
from trainguard.aws.wiring import evaluation_services
from trainguard.engine.batch import BatchProcessor
from trainguard.engine.installed import FAMILIES

logger = Logger()
metrics = Metrics()
journal = LateVerdicts(PowertoolsJournal(logger=logger, metrics=metrics))
environment = load_environment(EVALUATION, function="evaluate_objects")
services = evaluation_services(environment, clients=Clients(), journal=journal)
shared = FAMILIES.share(services.objects)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, list[dict[str, str]]]:
    """Process a batch; messages of nodes that failed are delivered again, and no others."""
    processor = BatchProcessor(
        services=services,
        timing=lambda_timing(context),
        bucket=environment.profile_bucket,
        families=FAMILIES,
        shared=shared,
    )
    outcome = processor.process(messages_of(event, journal))
    journal.end_batch()
    return batch_response(outcome)
