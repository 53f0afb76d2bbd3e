"""Cost of steps that a job saves: a model, compared with counts of the real engine in a test."""

from trainguard.engine.training.family import DEFAULT_NAMES
from trainguard.running_costs.unit_prices import CostLine, UnitPrices
from trainguard.running_costs.workload import MINUTES_AN_HOUR, FunctionMemory, Workload

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
