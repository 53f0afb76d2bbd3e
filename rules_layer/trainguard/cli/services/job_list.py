"""Jobs for ``jobs`` and ``status``: a line each, with the most severe finding."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from trainguard.cli.output.rendering import (
    Block,
    Cell,
    Line,
    Shown,
    TerminalColumn,
    TerminalFacts,
    heading,
    severity_cell,
    table,
)
from trainguard.cli.output.result import CommandResult
from trainguard.cli.output.rows import age, has_fired, iso, report_row, ringing, time_text
from trainguard.cli.services.deployment import Stores
from trainguard.cli.services.names import unknown_job
from trainguard.core.errors import StateCodecError
from trainguard.core.finding import severity_rank
from trainguard.core.records import JobRecord, JobStatus, RuleRow
from trainguard.core.units import counted, show_duration

# Of more nodes of a rule, those that are well are counted.
NODES_SHOWN = 8

# Of more it takes longer to read all rows than to ask for those of the whole job one by one.
_MANY_NODES = 16

_DECISIONS = {
    "stop": "to be stopped",
    "grace": "grace time",
    "dry-run": "dry run",
    "refused": "not stopped",
    "undecided": "not stopped, the decision failed",
}
AT_ONCE = 16
_VERDICT_CHARACTERS = 120

# A job as `--json` has it; times are ISO 8601 in UTC.
#
# ``severity`` and ``cost_lost`` are of ``finding``, the most severe; ``fault`` says why its rows cannot be read.
JobLine = dict[str, Any]


def read_job(stores: Stores, job: str) -> tuple[JobRecord | None, list[RuleRow]]:
    """Return a job's item and rows; raises UnknownNameError or UnknownJobError when there is neither."""
    record, rows = stores.jobs.load(job), stores.rows.of_job(job)
    if record is None and not rows:
        raise unknown_job(job, stores.jobs)
    return record, rows


def expired_record(job: str) -> JobRecord:
    return JobRecord(job=job, arn="", bucket="", prefix="", active=False)


def read_whole_job(stores: Stores, record: JobRecord) -> Sequence[RuleRow]:
    """Return a job's rows of the whole job, with the results of fires; of few nodes, theirs too."""
    many = (record.instance_count or 1) > _MANY_NODES
    return stores.rows.of_whole_job(record.job) if many else stores.rows.of_job(record.job)


def shown_nodes(nodes: Sequence[RuleRow]) -> tuple[Sequence[RuleRow], str]:
    """Return the nodes to show, the worst first, and a sentence on the others; empty when there are none."""
    if len(nodes) <= NODES_SHOWN:
        return nodes, ""
    shown, rest = nodes[:NODES_SHOWN], nodes[NODES_SHOWN:]
    counts = Counter(stored.status.value for stored in rest)
    by_status = ", ".join(f"{amount} {status}" for status, amount in counts.items())
    return shown, f"… and {counted(len(rest), 'node')} more: {by_status}. All of them are in --json."


def stop_text(row: RuleRow, fire_id: str | None, now: float) -> str:
    """Return a row's newest decision on a stop in words, for the fire ``fire_id``; empty where there was none."""
    stop = row.stop
    if stop is None:
        return ""
    decision = "stopped" if stop.made else _DECISIONS.get(stop.decision, stop.decision)
    if stop.decision == "stop" and stop.made is False:
        decision = "not stopped, SageMaker did not take the call"
    of = ", for an earlier fire" if stop.fire_id is not None and fire_id not in {None, stop.fire_id} else ""
    when = "" if stop.at is None else f" ({time_text(stop.at, now)}{of})"
    return f"Stop: {decision}{when}: {stop.why}" if stop.why else f"Stop: {decision}{when}"


def configuration_blocks(record: JobRecord, rule: str | None = None) -> list[Block]:
    """Say what is wrong with a job's settings, those of ``rule`` in full, and which rules run elsewhere."""
    blocks: list[Block] = []
    faults = [fault for fault in record.faults if rule is None or rule.lower() in fault.lower()]
    others = len(record.faults) - len(faults)
    if record.faults:
        blocks.append(heading("Settings that cannot be used"))
        blocks += [Line(fault, indent=2) for fault in faults]
    if others:
        which = "not of this rule" if not faults else "more"
        blocks.append(Line(f"{others} {which}: `trainguard status` of the job shows them.", indent=2))
    if record.rules_elsewhere:
        blocks.append(heading("Configured rules that are not evaluated here"))
        blocks.append(TerminalFacts(sorted(record.rules_elsewhere.items())))
    if record.rule_places and rule is None:
        blocks.append(heading("Places that rule configurations name for their reports; nothing is written there"))
        blocks.append(TerminalFacts(sorted(record.rule_places.items())))
    return blocks


def _active_records(stores: Stores, pool: ThreadPoolExecutor) -> list[JobRecord]:
    """Return the jobs that are not closed, in order of their names."""
    return [record for record in pool.map(stores.jobs.load, stores.jobs.active()) if record is not None]


def begun(record: JobRecord) -> float | None:
    """Return when a job began, as well as that is known: one that SageMaker does not know has its objects alone."""
    known = (record.started_at, record.created_at, record.last_object_at)
    return next((at for at in known if at is not None), None)


def instances(kind: str | None, count: int | None) -> str:
    """Return for example ``2 x ml.p4d.24xlarge``."""
    if kind is None:
        return ""
    return kind if count in {None, 1} else f"{count} x {kind}"


def _read_lines(
    stores: Stores, records: Sequence[JobRecord], now: float, pool: ThreadPoolExecutor
) -> Iterator[JobLine]:
    """Read the rows of some jobs at a time, as far as lines are asked for."""

    def line(record: JobRecord) -> JobLine:
        try:
            return _line(record, read_whole_job(stores, record), now)
        except StateCodecError as fault:
            return _line(record, [], now) | {"fault": str(fault)}

    for start in range(0, len(records), AT_ONCE):
        yield from pool.map(line, records[start : start + AT_ONCE])


def _line(record: JobRecord, rows: Sequence[RuleRow], now: float) -> JobLine:
    report, firing = report_row(rows), ringing(rows)
    top = firing[0] if firing else None
    fired = [row.rule for row in rows if row.node is None and has_fired(row) and row is not report]
    until = record.ended_at or (now if record.active else record.last_object_at)
    begin = record.started_at or record.created_at
    return {
        "job": record.job,
        "status": record.status,
        "active": record.active,
        "instance_type": record.instance_type,
        "instance_count": record.instance_count,
        "platform": record.platform,
        "queue": record.queue,
        "owners": dict(record.owners),
        "started_at": iso(record.started_at),
        "ended_at": iso(record.ended_at),
        "duration_s": None if begin is None or until is None else max(until - begin, 0.0),
        "verdict": None if report is None else report.finding.reason,
        "finding": None if top is None else top.rule,
        "severity": None if top is None else top.finding.severity,
        "cost_lost": None if top is None else top.finding.cost,
        "ringing": [row.rule for row in firing],
        "fired": fired,
        "evaluated_through": None if report is None else iso(report.evaluated_through),
        "tuning_job": record.tuning_job,
        "fault": None,
    }


def status_of_job(status: JobStatus, *, active: bool) -> Cell:
    """Return a job's status in its colour; one that is still evaluated is marked."""
    style = {JobStatus.FAILED: "red", JobStatus.STOPPED: "yellow", JobStatus.COMPLETED: "dim"}.get(status, "")
    return Cell(status.value, style if not active else style or "cyan")


def _finding_text(line: JobLine) -> str:
    """Return the finding in a few words: what fires and what it has cost, else the verdict."""
    if line["fault"] is not None:
        return str(line["fault"])
    if line["ringing"]:
        return ", ".join(line["ringing"]) + (f"; {line['cost_lost']}" if line["cost_lost"] else "")
    if line["fired"]:
        return f"Over now: {', '.join(line['fired'])}."
    sentence: str = line["verdict"] or "No verdict yet."
    short = sentence[:_VERDICT_CHARACTERS].rsplit(" ", 1)[0] + " …"
    return sentence if len(sentence) <= _VERDICT_CHARACTERS else short


def jobs_result(
    stores: Stores, wanted: Callable[[JobRecord], bool], *, active: bool, fired: bool, limit: int, now: float
) -> CommandResult:
    """List the wanted jobs: ``active`` are those that are not closed, ``fired`` those on which a rule has."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        known = _active_records(stores, pool) if active else stores.jobs.all()
        records = sorted(filter(wanted, known), key=lambda record: (-(begun(record) or 0.0), record.job))
        lines = (line for line in _read_lines(stores, records, now, pool) if line["fired"] or not fired)
        found = list(islice(lines, limit + 1))
    shown = found[:limit]
    more = len(found) > limit
    notes = [] if shown else ["No job matches."]
    if more:
        notes.append(f"Only the newest {limit:,} are shown: pass --limit for more.")
    when = {TerminalColumn("started", drops=1): _started, TerminalColumn("ran", right=True, drops=2): _ran}
    return CommandResult(
        document={"generated_at": iso(now), "jobs": shown, "more": more},
        blocks=_grid(shown, when, "finding and verdict"),
        notes=notes,
        fired=any(line["fired"] for line in shown),
    )


def _grid(lines: Sequence[JobLine], when: Mapping[TerminalColumn, Callable[[JobLine], str]], found: str) -> list[Block]:
    cells: Mapping[TerminalColumn, Callable[[JobLine], Shown]] = {
        TerminalColumn("job", folds=True): lambda line: line["job"],
        TerminalColumn("status"): lambda line: status_of_job(line["status"], active=line["active"]),
        TerminalColumn("instance", drops=3): lambda line: instances(line["instance_type"], line["instance_count"]),
        **when,
        TerminalColumn("severity"): lambda line: severity_cell(line["severity"]),
        TerminalColumn(found, folds=True): _finding_text,
    }
    return [table(lines, cells)] if lines else []


def _started(line: JobLine) -> str:
    return "" if line["started_at"] is None else f"{line['started_at'][:16].replace('T', ' ')}Z"


def _ran(line: JobLine) -> str:
    return "" if line["duration_s"] is None else show_duration(line["duration_s"])


def active_result(stores: Stores, *, now: float) -> CommandResult:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        records = _active_records(stores, pool)
        found = _read_lines(stores, records, now, pool)
        lines = sorted(found, key=lambda line: (-severity_rank(line["severity"]), line["job"]))
    newest = {record.job: record.last_object_at for record in records}

    def evaluated(line: JobLine) -> str:
        at = newest[line["job"]]
        return f"{age(at, now)} ago" if at is not None else ""

    when = {
        TerminalColumn("running", right=True, drops=2): _ran,
        TerminalColumn("evaluated", right=True, drops=1): evaluated,
    }
    return CommandResult(
        document={"generated_at": iso(now), "jobs": lines},
        blocks=_grid(lines, when, "what fires"),
        notes=[] if lines else ["No job is active: `trainguard jobs` lists those that have ended."],
        fired=any(line["fired"] for line in lines),
    )
