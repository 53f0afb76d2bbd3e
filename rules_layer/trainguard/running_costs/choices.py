"""Cost of what is a choice: profile, traces, saved steps, a network without internet, a key, an audit, messages.

The model of saved steps is compared with counts of the real engine in a test.
"""

from collections.abc import Iterator

from trainguard.engine.training.family import DEFAULT_NAMES
from trainguard.running_costs.unit_prices import CostLine, UnitPrices
from trainguard.running_costs.workload import HOURS_A_MONTH, MINUTES_AN_HOUR, REQUEST_BATCH, FunctionMemory, Workload

_GB = 1e9
_ENDPOINT_BYTES_AN_OBJECT = 4_000
# Tables, queues and topics ask for the key again after five minutes; S3 has bucket keys.
_KEY_REQUESTS_AN_HOUR = 12 * 7

# From its start to the look that stops it, and to the upload of its output.
_CANARY_JOB_HOURS = 0.3

# Traces as gzip grow so many times; a GB of text takes 0.0005 USD of Lambda.
_TEXT_OF_TRACES, _TRACE_GIB_S_A_GB = 15, 37.5

# Of an alert's entry before and after the webhook's event is on the bus.
_WEBHOOK_WRITES = 2
# Of a cold start, as GPUs seldom break.
_OPS_ITEM_GIB_S = 1.0

OBJECTS_A_STEP = 2
# S3 says which steps are complete. The index is read, and of the event file the parts with the values asked for.
_LISTS_A_STEP, _GETS_A_STEP = 1, 3

# The item of a run of 300 weights with their gradients has 2,142 bytes after an hour.
_STATE_UNITS = 3

_REQUESTS_A_MESSAGE = 3
_ROWS_A_RULE, _SHOWS_AN_HOUR = 2, 4
# A listing, three reads and a write wait some 15 ms each. The rules over 600 tensors with six reductions each compute
# for 0.1 s, on the share of a core that comes with 1,024 MiB.
_STEP_S = 0.25


def profile_lines(job: Workload, prices: UnitPrices) -> Iterator[CostLine]:
    """Yield the cost an hour of the profile: of storing an hour as long as it is kept, and of writing it."""
    months = job.retention_days * 24 / HOURS_A_MONTH
    yield CostLine("S3", "GB-months of profile", job.profile_bytes / _GB * months, prices.object_gb_month)
    yield CostLine("S3", "PUT by the training job", job.objects, prices.object_put)
    if job.traces_gb:
        yield CostLine("S3", "GB-months of kernel traces", job.traces_gb * months, prices.object_gb_month)
    if job.statuses:
        yield CostLine("S3", "PUT of the collector's status", job.statuses, prices.object_put)
        yield messages_of("the collector's status", job.statuses, prices, by_events=job.sends_events)


def messages_of(what: str, objects: float, prices: UnitPrices, *, by_events: bool) -> CostLine:
    """Return the cost of messages of objects that are no profile, which the evaluator drops."""
    if by_events:
        return CostLine("EventBridge", f"events of {what}", 2 * objects, prices.event)
    requests = objects * (1 + 2 / REQUEST_BATCH)
    return CostLine("SQS", f"requests for messages of {what}", requests, prices.queue_request)


def chosen_lines(job: Workload, prices: UnitPrices, called: float) -> Iterator[CostLine]:
    """Yield what choices add to an hour; ``called`` are requests that CloudTrail can log."""
    if job.traces_gb:
        compute = job.traces_gb * _TEXT_OF_TRACES * _TRACE_GIB_S_A_GB
        yield CostLine("Lambda", "GiB-s for kernel traces", compute, prices.compute_gib_s)
    if job.data_events:
        yield CostLine("CloudTrail", "data events of bucket, tables and functions", called, prices.data_event)
    if job.endpoints:
        through = job.objects * _ENDPOINT_BYTES_AN_OBJECT / _GB
        yield CostLine("VPC", "GB through interface endpoints", through, prices.endpoint_gb)


def monthly_lines(job: Workload, prices: UnitPrices) -> Iterator[CostLine]:
    """Yield what choices cost in each month, with jobs and without."""
    if job.canary_job:
        hours = _CANARY_JOB_HOURS * HOURS_A_MONTH / 24
        yield CostLine("SageMaker", "hours of the canary's jobs on ml.m5.large", hours, prices.canary_job_hour)
    if job.endpoints:
        hours = job.endpoints * HOURS_A_MONTH
        yield CostLine("VPC", "hours of interface endpoints", hours, prices.endpoint_hour)
    if job.customer_key:
        yield CostLine("KMS", "key", 1, prices.key_month)
        yield CostLine("KMS", "requests", _KEY_REQUESTS_AN_HOUR * HOURS_A_MONTH, prices.key_request)
    if job.ops_items:
        yield CostLine("Systems Manager", "OpsItems of broken GPUs", job.ops_items, prices.ops_item)
        yield CostLine("Lambda", "invocations of open_ops_items", job.ops_items, prices.invocation)
        yield CostLine("Lambda", "GiB-s of open_ops_items", job.ops_items * _OPS_ITEM_GIB_S, prices.compute_gib_s)


def webhook_lines(job: Workload, prices: UnitPrices) -> Iterator[CostLine]:
    """Yield what a webhook adds to an alert: the event with the body, its post, and the claim on the channel."""
    if job.webhook:
        yield CostLine("EventBridge", "events for the webhook", 1, prices.event)
        yield CostLine("EventBridge", "posts of the webhook", 1, prices.webhook_post)
        yield CostLine("DynamoDB", "write units for the webhook", _WEBHOOK_WRITES, prices.write_unit)


def saved_step_lines(
    job: Workload, prices: UnitPrices, memory: FunctionMemory, *, reconcile_gib_s: float, reconcile_reads: int
) -> tuple[CostLine, ...]:
    """Return the cost an hour of saved steps; ``reconcile_gib_s`` and ``reconcile_reads`` are each minute's."""
    steps = job.saved_steps
    if not steps:
        return ()
    reconciliations = MINUTES_AN_HOUR - job.reconciliations
    compute = steps * _STEP_S * memory.evaluator_memory_mb / 1_024 + reconciliations * reconcile_gib_s
    rows = len(DEFAULT_NAMES) * _ROWS_A_RULE * _SHOWS_AN_HOUR
    events = 2 * OBJECTS_A_STEP * steps if job.sends_events else 0.0
    return (
        *((CostLine("EventBridge", "events of saved steps", events, prices.event),) if events else ()),
        CostLine("SQS", "requests for saved steps", steps * OBJECTS_A_STEP * _REQUESTS_A_MESSAGE, prices.queue_request),
        CostLine("Lambda", "invocations for saved steps", steps + reconciliations, prices.invocation),
        CostLine("Lambda", "GiB-s for saved steps", compute, prices.compute_gib_s),
        CostLine("S3", "LIST for saved steps", steps * _LISTS_A_STEP, prices.object_put),
        CostLine("S3", "GET for saved steps", steps * _GETS_A_STEP, prices.object_get),
        CostLine(
            "DynamoDB",
            "write units for saved steps",
            steps * _STATE_UNITS + rows + reconciliations + min(steps, reconciliations),
            prices.write_unit,
        ),
        CostLine(
            "DynamoDB", "read units for saved steps", 2 * steps + reconciliations * reconcile_reads, prices.read_unit
        ),
    )
