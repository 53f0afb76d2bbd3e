"""Opens an OpsItem in OpsCenter for each GPU that a finding says is broken."""

from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.ssm import SsmOpsItems
from trainguard.stack.actions.ops_items import FindingEvent, open_all

logger = Logger()
clients = Clients()
ops_items = SsmOpsItems(client=lambda: clients.ssm)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Open the items of an event; a repeat opens none again."""
    del context
    finding = msgspec.convert(event, FindingEvent).detail
    answer = open_all(finding, ops_items)
    logger.info("ops_items", extra={"job": finding.job, **answer})
    return answer
