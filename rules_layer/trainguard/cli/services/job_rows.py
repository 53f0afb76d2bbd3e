"""What ``status`` and ``explain`` share: a job's item and rows, its nodes, decisions on stops, its configuration."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from trainguard.adapters.timestamps import epoch_from_iso
from trainguard.cli.output.blocks import Block, Facts, Heading, Line
from trainguard.cli.output.rows import StopEntry, time_text
from trainguard.cli.services.deployment import Stores
from trainguard.cli.services.names import unknown_job
from trainguard.records import JobRecord, RuleRow
from trainguard.rules.units import counted

NODES_SHOWN = 8
"""A person reads so many nodes of a rule one by one; of more, those that are well are counted."""

_MANY_NODES = 16
"""Of so many it takes longer to read the rows of all than to ask for those of the whole job one by one."""

_DECISIONS = {
    "stop": "to be stopped",
    "grace": "grace time",
    "dry-run": "dry run",
    "refused": "not stopped",
    "undecided": "not stopped, the decision failed",
}


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """What of a job's configuration does not do what it seems to; ``rules_elsewhere`` maps configured rules to why."""

    setting_faults: list[str] = []
    rules_elsewhere: dict[str, str] = {}
    rule_places: dict[str, str] = {}


def read_job(stores: Stores, job: str) -> tuple[JobRecord | None, list[RuleRow]]:
    """Return a job's item and rows; raises UnknownNameError or UnknownJobError when there is neither."""
    record, rows = stores.jobs.load(job), stores.rows.of_job(job)
    if record is None and not rows:
        raise unknown_job(job, stores.jobs)
    return record, rows


def has_many_nodes(record: JobRecord) -> bool:
    """Whether a job's rows of nodes are too many to be read along with those of the whole job."""
    return (record.instance_count or 1) > _MANY_NODES


def read_whole_job(stores: Stores, record: JobRecord) -> Sequence[RuleRow]:
    """Return a job's rows of the whole job, with what came of fires; of few nodes, theirs too."""
    if not has_many_nodes(record):
        return stores.rows.of_job(record.job)
    return stores.rows.of_whole_job(record.job)


def configuration_of(record: JobRecord | None) -> Configuration:
    """Return what a job's item says of its configuration; nothing where the item has expired."""
    if record is None:
        return Configuration()
    return Configuration(
        setting_faults=list(record.faults),
        rules_elsewhere=dict(record.rules_elsewhere),
        rule_places=dict(record.rule_places),
    )


def shown_nodes(nodes: Sequence[RuleRow]) -> tuple[Sequence[RuleRow], str]:
    """Return the nodes to show, the worst first, and a sentence on the others; empty when there are none."""
    if len(nodes) <= NODES_SHOWN:
        return nodes, ""
    shown, rest = nodes[:NODES_SHOWN], nodes[NODES_SHOWN:]
    counts = Counter(stored.status.value for stored in rest)
    told_counts = ", ".join(f"{amount} {status}" for status, amount in counts.items())
    return shown, f"… and {counted(len(rest), 'node')} more: {told_counts}. All of them are in --json."


def stop_text(stop: StopEntry | None, fire_id: str | None, now: float) -> str:
    """Say what was decided on a stop; empty where nothing was."""
    if stop is None:
        return ""
    decision = "stopped" if stop.made else _DECISIONS.get(stop.decision, stop.decision)
    if stop.decision == "stop" and stop.made is False:
        decision = "not stopped, SageMaker did not take the call"
    of = ", for an earlier fire" if stop.fire_id is not None and fire_id not in {None, stop.fire_id} else ""
    when = "" if stop.at is None else f" ({time_text(epoch_from_iso(stop.at), now)}{of})"
    return f"Stop: {decision}{when}: {stop.why}" if stop.why else f"Stop: {decision}{when}"


def configuration_blocks(told: Configuration, rule: str | None = None) -> list[Block]:
    """Tell what is wrong with a job's settings, and which of its configured rules run elsewhere, if at all.

    With ``rule``, faults of other rules are counted.
    """
    blocks: list[Block] = []
    faults = [fault for fault in told.setting_faults if rule is None or rule.lower() in fault.lower()]
    others = len(told.setting_faults) - len(faults)
    if told.setting_faults:
        blocks.append(Heading("Settings that cannot be used"))
        blocks += [Line(fault, indent=2) for fault in faults]
    if others:
        which = "not of this rule" if not faults else "more"
        blocks.append(Line(f"{others} {which}: `trainguard status` of the job tells them.", indent=2))
    if told.rules_elsewhere:
        blocks.append(Heading("Configured rules that are not evaluated here"))
        blocks.append(Facts(sorted(told.rules_elsewhere.items())))
    if told.rule_places and rule is None:
        blocks.append(Heading("Places that rule configurations name for their reports; nothing is written there"))
        blocks.append(Facts(sorted(told.rule_places.items())))
    return blocks
