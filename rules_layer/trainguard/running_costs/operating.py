"""A model of what it costs to operate TrainGuard: use of the stack, multiplied by unit prices.

The sizes and times in it are those that `make bench` prints, in round numbers; where the stack shares work between
nodes the model takes the dearer case.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.rules.registry import FRAMEWORK_RULES, RULE_NAMES, SYSTEM_RULES
from trainguard.running_costs.choices import (
    chosen_lines,
    messages_of,
    monthly_lines,
    profile_lines,
    saved_step_lines,
    webhook_lines,
)
from trainguard.running_costs.unit_prices import CostLine, FreeTier, UnitPrices, total
from trainguard.running_costs.workload import (
    DEFAULT_MEMORY,
    HOURS_A_MONTH,
    MINUTES_AN_HOUR,
    READ_BYTES,
    REQUEST_BATCH,
    FunctionMemory,
    Workload,
    node_bytes,
    node_units,
    own_bytes,
    own_units,
)
from trainguard.stack.report.keys import FEWEST_NODES, MOST_KEYS
from trainguard.stack.report.parts import DIGESTS_AT_ONCE, READING_S

NOTHING_FREE = FreeTier()
ALARM_METRICS = 9

CANARIES_A_MONTH = HOURS_A_MONTH / 24

_FRAMEWORK_STATE_UNITS = 4
# A row with a rule's facts has up to 2.6 KB; one of a rule that waits or does not apply has none, and less than 1 KB.
# The report's has the ledger as facts.
_ROW_UNITS, _ROW_UNITS_WITHOUT_FACTS = 3, 1

_REPORT_ROW_UNITS = 1
# A row that does not change is written every 30 minutes where nothing is found, hourly where the rule does not apply;
# the report's, by which people see how far the job is judged, every five.
_SHOWS_AN_HOUR, _REPORT_SHOWS_AN_HOUR = 2, 12

# Rows of rules over series that the managed profile does not have: of a job, and of each node.
_OF_THE_COLLECTOR, _OF_THE_COLLECTOR_A_NODE = 3, 2

# Rows of a job of rules that its framework metrics alone make applicable.
_OF_FRAMEWORK = 4

# Each row is written twice in the first minutes beside those of any hour: begun, and judged.
_EARLY_ROW_UNITS = _ROW_UNITS_WITHOUT_FACTS + _ROW_UNITS

# A job's item and its index entry when it is registered, and three when it becomes slowly polled.
_JOB_WRITES = 5

_CLOSE_WRITES = 4

_OBJECTS_A_BATCH = 25
# Windows of 20 s in which messages gather; batches of up to 100 are a quarter full, as five pollers share a queue.
_WINDOWS_A_MINUTE = 3

# A message waits for its job's and its node's item, an object for S3, an evaluation for its writes.
_MESSAGE_WAIT_S, _OBJECT_WAIT_S, _WRITE_WAIT_S = 0.02, 0.015, 0.015

_EVALUATE_S_A_LINE = 2e-6
_READ_WAIT_S, _DIGEST_S_A_LINE = 0.08, 1.8e-6
_FOLDERS_LISTED, _KEYS_A_PAGE = 3, 1_000
# An evaluator lists a job's framework objects once in 50 s at most, some minutes back, for all nodes that it has.
_LISTINGS_AN_HOUR, _MINUTES_LISTED = 72, 6

_SCHEDULE_S = 0.05
# The index is asked for jobs that are polled fast, and for the others.
_SCHEDULER_READ_UNITS = 2 * 0.5

_RECONCILE_WAIT_S, _RECONCILE_CORE_S_A_NODE = 0.1, 0.001
# With less memory a function has a share of a core, and takes as much longer.
_GIB_A_CORE = 1_769 / 1_024

# An invocation that drops its messages has the platform's lines alone.
_LOG_BYTES_AN_INVOCATION, _LOG_BYTES_A_BRIEF_ONE, _LOG_BYTES_A_RECONCILIATION = 1_500, 500, 600

# Of a run of the scheduler without jobs: Lambda's three lines, and none of its own.
_IDLE_LOG_BYTES = 400

# Metrics of the functions that have a value within the hour of a canary.
_CANARY_METRICS = 9

_POLLERS = 5
_MOST_EVALUATORS = 20

_BUSY_METRICS = 4
_REPORT_TRANSITIONS, FIRE_TRANSITIONS = 12, 18
FIRE_INVOCATIONS = 7
# Of a row, and of an alert's entry before and after it goes out on each of three channels.
_FIRE_WRITES, _CLAIM_WRITES = 4, 6

# Of the entry in the index ByStatus: two each when the status changes, and with severity and action.
_INDEX_WRITES = 6

# Within the hour of a fire its rule's and its severity's, within that of the job's end the money, whole and its rule's.
_FIRE_METRICS = 4

# About, with a cold start of five functions.
_FIRE_COMPUTE_GIB_S = 11.0

# A log line at each state's begin and end, with input and output.
_LOG_BYTES_A_TRANSITION = 7_000

# Item reads and writes of jobs, nodes and rows.
_CALLS_A_RECONCILIATION = 6

_GB = 1e9


@dataclass(frozen=True, slots=True)
class Estimate:
    """Costs of an hour (``hourly``, ``profile``), once (``at_start``, ``at_end``, ``fire``), and a month."""

    workload: Workload
    hourly: Sequence[CostLine]
    at_start: Sequence[CostLine]
    at_end: Sequence[CostLine]
    fire: Sequence[CostLine]
    idle: Sequence[CostLine]
    busy: Sequence[CostLine]
    profile: Sequence[CostLine]

    @property
    def an_hour(self) -> float:
        return total(self.hourly)

    @property
    def the_job(self) -> float:
        """Cost of the whole job, with its beginning and its report."""
        return total(self.at_start) + self.an_hour * self.workload.hours + total(self.at_end)

    @property
    def a_month(self) -> float:
        """Cost of a month of such jobs without a break, and of the deployment."""
        return self.the_job * HOURS_A_MONTH / self.workload.hours + total(self.idle) + total(self.busy)

    @property
    def with_profile(self) -> dict[str, float]:
        """The hour, the job and the month with the profile's storage and requests."""
        profile = total(self.profile)
        return {
            "hour": self.an_hour + profile,
            "job": self.the_job + self.the_profile,
            "month": self.a_month + profile * HOURS_A_MONTH,
        }

    @property
    def an_idle_month(self) -> float:
        return total(self.idle)

    @property
    def an_idle_month_beyond_free(self) -> float:
        """The same in an account that uses its free tier for nothing else."""
        return math.fsum(line.cost_beyond_free for line in self.idle)

    @property
    def the_profile(self) -> float:
        return total(self.profile) * self.workload.hours


def estimate(
    workload: Workload, prices: UnitPrices, free: FreeTier = NOTHING_FREE, memory: FunctionMemory = DEFAULT_MEMORY
) -> Estimate:
    metric_hour = prices.metric_month / HOURS_A_MONTH
    return Estimate(
        workload=workload,
        hourly=_hourly(workload, prices, memory),
        at_start=_at_start(workload, prices, memory),
        at_end=_at_end(workload, prices, memory),
        fire=(
            *_fire(workload, prices),
            *webhook_lines(workload, prices),
            CostLine("CloudWatch", "hours of metrics", _FIRE_METRICS, metric_hour),
        ),
        idle=_idle(workload, prices, free, memory),
        busy=(CostLine("CloudWatch", "metrics of the functions", _BUSY_METRICS, prices.metric_month),),
        profile=tuple(profile_lines(workload, prices)),
    )


def _hourly(job: Workload, prices: UnitPrices, memory: FunctionMemory) -> tuple[CostLine, ...]:
    per_minute = job.objects / MINUTES_AN_HOUR
    invocations = MINUTES_AN_HOUR * min(per_minute, max(_WINDOWS_A_MINUTE, per_minute / _OBJECTS_A_BATCH))
    requests = job.objects + 2 * max(invocations, job.objects / REQUEST_BATCH)
    evaluator_s = job.objects * (_MESSAGE_WAIT_S + _OBJECT_WAIT_S) + _evaluations(job) * _WRITE_WAIT_S
    evaluator_s += job.nodes * MINUTES_AN_HOUR * job.lines * _EVALUATE_S_A_LINE
    reconciliations = job.reconciliations * _reconcile_gib_s(job.nodes, memory.reconcile_memory_mb / 1_024)
    brief = max(invocations - _evaluations(job), 0.0)
    logs = (
        (invocations - brief) * _LOG_BYTES_AN_INVOCATION
        + brief * _LOG_BYTES_A_BRIEF_ONE
        + job.reconciliations * _LOG_BYTES_A_RECONCILIATION
    )
    inapplicable = _OF_THE_COLLECTOR + job.nodes * _OF_THE_COLLECTOR_A_NODE + (0 if job.framework else _OF_FRAMEWORK)
    rows = _rows(job) - inapplicable
    row_units = rows * _SHOWS_AN_HOUR * _ROW_UNITS + inapplicable * _ROW_UNITS_WITHOUT_FACTS
    row_units += _REPORT_SHOWS_AN_HOUR * _REPORT_ROW_UNITS
    framework_units = MINUTES_AN_HOUR * _FRAMEWORK_STATE_UNITS * min(job.framework_objects, _WINDOWS_A_MINUTE)
    state_units = job.nodes * (job.evaluations * node_units(job.gpus) + framework_units)
    state_units += job.reconciliations * own_units(job.nodes)
    listed = (CostLine("S3", "LIST", _listed_an_hour(job, evaluator_s), prices.object_put),) if job.framework else ()
    called = 3 * job.objects + _evaluations(job) + 2 * invocations + job.reconciliations * _CALLS_A_RECONCILIATION
    sent = ("events of S3", "events of S3 when objects expire") if job.sends_events else ()
    events = (CostLine("EventBridge", what, job.objects, prices.event) for what in sent)
    return (
        *events,
        CostLine("SQS", "requests: send, receive, delete", requests, prices.queue_request),
        CostLine("Lambda", "invocations of evaluate_objects", invocations, prices.invocation),
        CostLine(
            "Lambda",
            "GiB-s of evaluate_objects",
            evaluator_s * memory.evaluator_memory_mb / 1_024,
            prices.compute_gib_s,
        ),
        CostLine("Lambda", "invocations of reconcile_job", job.reconciliations, prices.invocation),
        CostLine("Lambda", "GiB-s of reconcile_job", reconciliations, prices.compute_gib_s),
        CostLine("S3", "GET", job.objects, prices.object_get),
        *listed,
        CostLine("DynamoDB", "write units of NodeState", state_units, prices.write_unit),
        CostLine("DynamoDB", "write units of RuleState", row_units, prices.write_unit),
        CostLine("DynamoDB", "write units of Jobs", job.reconciliations, prices.write_unit),
        CostLine("DynamoDB", "read units", _reads(job, invocations), prices.read_unit),
        CostLine("CloudWatch", "GB of logs", logs / _GB, prices.log_gb),
        *saved_step_lines(
            job,
            prices,
            memory,
            reconcile_gib_s=reconciliations / job.reconciliations,
            reconcile_reads=_reconcile_reads(job),
        ),
        *chosen_lines(job, prices, called),
    )


def _at_start(job: Workload, prices: UnitPrices, memory: FunctionMemory) -> tuple[CostLine, ...]:
    evaluations, reconciliations = job.nodes * job.early_evaluations, job.early_reconciliations
    compute = evaluations * _WRITE_WAIT_S * memory.evaluator_memory_mb / 1_024
    compute += reconciliations * _reconcile_gib_s(job.nodes, memory.reconcile_memory_mb / 1_024)
    states = evaluations * node_units(job.gpus) + reconciliations * own_units(job.nodes)
    rows = _EARLY_ROW_UNITS * _rows(job)
    return (
        CostLine("Lambda", "invocations of reconcile_job", reconciliations, prices.invocation),
        CostLine("Lambda", "GiB-s", compute, prices.compute_gib_s),
        CostLine("DynamoDB", "write units of NodeState", states, prices.write_unit),
        CostLine("DynamoDB", "write units of RuleState", rows, prices.write_unit),
        CostLine("DynamoDB", "write units of Jobs, with its index", reconciliations + _JOB_WRITES, prices.write_unit),
        CostLine("DynamoDB", "read units", reconciliations * _reconcile_reads(job), prices.read_unit),
        CostLine("CloudWatch", "GB of logs", reconciliations * _LOG_BYTES_A_RECONCILIATION / _GB, prices.log_gb),
    )


def _rows(job: Workload) -> int:
    return len(RULE_NAMES) + job.nodes * (len(SYSTEM_RULES) + (len(FRAMEWORK_RULES) if job.framework else 0))


def _evaluations(job: Workload) -> float:
    return job.nodes * (job.evaluations + MINUTES_AN_HOUR * job.framework_objects)


def _reads(job: Workload, invocations: float) -> float:
    """Return the read units an hour: a node's item a message, the job's an invocation, all a reconciliation."""
    node = math.ceil(node_bytes(job.gpus) / READ_BYTES)
    framework = job.framework_objects * math.ceil(_FRAMEWORK_STATE_UNITS / 4)
    return job.nodes * MINUTES_AN_HOUR * (node + framework) + invocations + job.reconciliations * _reconcile_reads(job)


def _reconcile_reads(job: Workload) -> int:
    framework = _FRAMEWORK_STATE_UNITS * 1_024 if job.framework else 0
    return 1 + math.ceil((own_bytes(job.nodes) + job.nodes * (node_bytes(job.gpus) + framework)) / READ_BYTES)


def _reconcile_gib_s(nodes: int, gib: float) -> float:
    """Return the GiB-seconds of a reconciliation: it waits for stores, and judges each node on a share of a core."""
    return _RECONCILE_WAIT_S * gib + nodes * _RECONCILE_CORE_S_A_NODE * max(gib, _GIB_A_CORE)


def _listed_an_hour(job: Workload, evaluator_s: float) -> float:
    evaluators = min(job.nodes, max(_POLLERS, min(2 * evaluator_s / 3_600, _MOST_EVALUATORS)))
    keys = job.nodes * job.framework_objects * _MINUTES_LISTED
    return evaluators * _LISTINGS_AN_HOUR * (1 + keys / _KEYS_A_PAGE)


def _at_end(job: Workload, prices: UnitPrices, memory: FunctionMemory) -> tuple[CostLine, ...]:
    objects = job.objects * job.hours
    items = job.nodes * math.ceil(job.hours / 24)
    pages, lists = _listings(job)
    digest_s = objects * _READ_WAIT_S + job.nodes * MINUTES_AN_HOUR * job.hours * job.lines * _DIGEST_S_A_LINE
    read = min(1.0, READING_S * DIGESTS_AT_ONCE / digest_s)
    transitions = _REPORT_TRANSITIONS + 3 * items
    written = items + lists + len(RULE_NAMES) + 3
    return (
        CostLine("S3", "GET", read * objects + items + lists, prices.object_get),
        CostLine("S3", "LIST and PUT", pages + written, prices.object_put),
        CostLine(
            "Lambda",
            "GiB-s of the report's functions" + (f", which stop after {read:.0%} of the profile" if read < 1.0 else ""),
            read * digest_s * memory.report_memory_mb / 1_024,
            prices.compute_gib_s,
        ),
        CostLine("Step Functions", "transitions", transitions, prices.transition),
        CostLine("CloudWatch", "GB of execution logs", transitions * _LOG_BYTES_A_TRANSITION / _GB, prices.log_gb),
        messages_of("the report's objects", written, prices, by_events=job.existing_bucket),
        CostLine("DynamoDB", "write units of Jobs, with its index", _CLOSE_WRITES, prices.write_unit),
    )


def _listings(job: Workload) -> tuple[float, int]:
    """Return how many pages of keys a full report lists, and how many lists its plan leaves."""
    days, keys = math.ceil(job.hours / 24), job.objects * min(job.hours, 24.0)
    pages = _FOLDERS_LISTED + keys / _KEYS_A_PAGE
    if job.nodes < FEWEST_NODES:
        return job.nodes * days * pages, 0
    return days * pages, job.nodes * days * math.ceil(keys / MOST_KEYS)


def _fire(job: Workload, prices: UnitPrices) -> tuple[CostLine, ...]:
    return (
        CostLine("Step Functions", "transitions", FIRE_TRANSITIONS, prices.transition),
        CostLine("CloudWatch", "GB of execution logs", FIRE_TRANSITIONS * _LOG_BYTES_A_TRANSITION / _GB, prices.log_gb),
        CostLine("Lambda", "invocations", FIRE_INVOCATIONS, prices.invocation),
        CostLine("Lambda", "GiB-s", _FIRE_COMPUTE_GIB_S, prices.compute_gib_s),
        CostLine("DynamoDB", "write units of RuleState", 2 * _FIRE_WRITES, prices.write_unit),
        CostLine("DynamoDB", "write units of Bookkeeping", _CLAIM_WRITES, prices.write_unit),
        CostLine("DynamoDB", "write units of the index ByStatus", _INDEX_WRITES, prices.write_unit),
        CostLine("S3", "PUT", len(RULE_NAMES) + 3, prices.object_put),
        CostLine("SNS", "messages, for mail and for chat", 2, prices.message),
        CostLine("EventBridge", "events", 1, prices.event),
        messages_of("the report's objects", len(RULE_NAMES) + 3, prices, by_events=job.existing_bucket),
    )


def _idle(job: Workload, prices: UnitPrices, free: FreeTier, memory: FunctionMemory) -> tuple[CostLine, ...]:
    runs = MINUTES_AN_HOUR * HOURS_A_MONTH
    canary_metrics = _CANARY_METRICS * CANARIES_A_MONTH / HOURS_A_MONTH
    polls, compute = runs * _POLLERS * _WINDOWS_A_MINUTE, runs * _SCHEDULE_S * memory.scheduler_memory_mb / 1_024
    return (
        CostLine(
            "CloudWatch", "metrics that alarms read", ALARM_METRICS, prices.alarm_metric_month, free.alarm_metrics
        ),
        CostLine("SQS", "requests of Lambda's pollers", polls, prices.queue_request, free.queue_requests),
        CostLine("Lambda", "invocations of scheduler", runs, prices.invocation, free.invocations),
        CostLine("Lambda", "GiB-s of scheduler", compute, prices.compute_gib_s, free.compute_gib_s),
        CostLine("CloudWatch", "GB of logs", runs * _IDLE_LOG_BYTES / _GB, prices.log_gb, free.log_gb),
        CostLine("DynamoDB", "read units", runs * _SCHEDULER_READ_UNITS, prices.read_unit),
        CostLine("several", "canaries, with alert and report", CANARIES_A_MONTH, total(_fire(job, prices))),
        CostLine("CloudWatch", "metrics in the canaries' hours", canary_metrics, prices.metric_month),
        *monthly_lines(job, prices),
    )
