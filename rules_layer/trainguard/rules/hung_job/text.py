"""The words of HungJob."""

from collections.abc import Callable, Mapping

from trainguard.core.units import counted, show_duration, show_number
from trainguard.rules.hung_job.facts import HungKind
from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.windows.warm_up import undecided

_HOSTS_DO = "compute, read, write nor send"


def text(sheet: FactSheet) -> Words:
    """Say how a job hangs, or why it does not."""
    shared = undecided(sheet)
    if shared is not None:
        return shared
    kind = HungKind(sheet.kind)
    if kind in _CALM:
        return Words(_CALM[kind](sheet))
    return Words(_standstill(sheet, kind), _advice(sheet, kind), "the job hung")


def _standstill(sheet: FactSheet, kind: HungKind) -> str:
    past = sheet.past
    stopped = "" if sheet.get("last_step_end") is None else f"steps {'had' if past else 'have'} stopped: "
    waiting, lasted = int(sheet.number("gpus_waiting")), show_duration(sheet.number("standstill_time"))
    looked = "looked" if past else f"{'has' if waiting == 1 else 'have'} looked"
    busy = f"for {lasted} {counted(waiting, 'GPU')} {looked} busy at {_watts(sheet)}"
    if kind is HungKind.SPINS:
        look = f"{busy}, as in a collective that does not end, or a kernel that only spins"
    elif kind is HungKind.WAITS_FOR_IDLE:
        idle = int(sheet.number("gpus_idle"))
        look = f"{busy}, and {_names(sheet, 'idle_gpu', idle)} {_be(idle, past=past)} idle"
    else:
        worked, did = ("worked", "computed, read, wrote nor sent") if past else ("has worked", _HOSTS_DO)
        look = f"for {lasted} no GPU {worked}, and the hosts neither {did}"
    late, silent = _count(sheet, "ranks_behind"), _count(sheet, "silent_nodes")
    behind = f"; behind in steps: {_names(sheet, 'rank_behind', late)}" if late else ""
    gone = f"; no samples any more from {_names(sheet, 'silent_node', silent)}" if silent else ""
    return f"{stopped}{look}{behind}{gone}."


def _be(count: int, *, past: bool) -> str:
    one, several = ("was", "were") if past else ("is", "are")
    return one if count == 1 else several


def _watts(sheet: FactSheet) -> str:
    each = "" if int(sheet.number("gpus_waiting")) == 1 else " each"
    drawn, at_work = f"{show_number(sheet.number('power'))} W{each}", sheet.get("power_at_work")
    if at_work is not None:
        return f"{drawn}, of {show_number(float(at_work.value))} W at work"
    return f"{drawn}, of a limit of {show_number(sheet.number('power_limit'))} W"


def _advice(sheet: FactSheet, kind: HungKind) -> str:
    late, silent, idle = _count(sheet, "ranks_behind"), _count(sheet, "silent_nodes"), _count(sheet, "gpus_idle")
    if late:
        first = f"Look at {_names(sheet, 'rank_behind', late)} first"
    elif silent:
        first = f"Look at {_names(sheet, 'silent_node', silent)} first"
    elif kind is HungKind.WAITS_FOR_IDLE and idle <= sheet.number("gpus_waiting"):
        first = f"Look at {_names(sheet, 'idle_gpu', idle)} first"
    else:
        first = "Take stack traces of all ranks (py-spy dump) first"
    return (
        f"{first}, then stop the job and restart it from its last checkpoint: it is paid for and does not go on. "
        "Set a timeout of collectives (TORCH_NCCL_ASYNC_ERROR_HANDLING=1, the timeout of init_process_group), so that "
        "it fails by itself, and replace the node if the same one hangs again."
    )


def _count(sheet: FactSheet, name: str) -> int:
    fact = sheet.get(name)
    return 0 if fact is None else int(fact.value)


def _names(sheet: FactSheet, name: str, count: int) -> str:
    shown = [str(fact.value) for fact in sheet.all(name)]
    if count == len(shown):
        return ", ".join(shown)
    return f"{', '.join(shown)} and {count - len(shown)} more"


def _quiet(sheet: FactSheet) -> str:
    lasted, needed = sheet.number("standstill_time"), sheet["standstill_time"].threshold or 0.0
    return f"no GPU has worked for {show_duration(lasted)}; that counts from {show_duration(needed)} on."


def _paused(sheet: FactSheet) -> str:
    pause = sheet["pause_length"]
    where = "" if pause.node is None else f" of {pause.node}"
    busy = ""
    if sheet.get("hosts_at_work") is not None:
        busy = (
            ", and its host computes, reads, writes or sends" if where else ", and hosts compute, read, write or send"
        )
    return f"no GPU{where} has worked for {show_duration(float(pause.value))}{busy}."


def _works(sheet: FactSheet) -> str:
    nodes = sheet.get("nodes")
    where = sheet.facts[0].node if nodes is None else counted(int(nodes.value), "node")
    return f"{'the GPUs' if nodes is None else 'GPUs'} of {where} work, by their utilization or their power."


def _not_known(sheet: FactSheet) -> str:
    needed, node = sheet["minutes_at_work"].threshold or 0.0, sheet["minutes_at_work"].node
    if node is None:
        return f"its GPUs have not worked for {needed:g} minutes with samples of power yet."
    return f"no GPU of {node} has worked for {needed:g} minutes with a sample of power."


def _no_power(sheet: FactSheet) -> str:
    node = sheet["samples"].node
    return (
        f"{'' if node is None else f'{node}: '}no power of the GPUs was collected, which the rule needs: "
        "trainguard-collector, dcgm-exporter, W&B and MLflow write it."
    )


_CALM: Mapping[HungKind, Callable[[FactSheet], str]] = {
    HungKind.NO_SAMPLES: lambda _: "no system metrics were written.",
    HungKind.NO_POWER: _no_power,
    HungKind.NOT_KNOWN: _not_known,
    HungKind.WORKS: _works,
    HungKind.STANDS_STILL: _quiet,
    HungKind.PAUSES: _paused,
    HungKind.NEWEST_SAMPLE: lambda sheet: f"no GPU of {sheet.facts[0].node} works in its newest sample.",
}
