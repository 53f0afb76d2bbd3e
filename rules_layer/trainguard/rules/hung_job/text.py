"""Kinds of findings of HungJob, and their words; the facts of a hang's dumps.

Those say which rank holds up the job, in what the others wait, and what its node's GPUs have.
"""

from collections.abc import Callable, Iterator, Mapping

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.core.units import counted
from trainguard.rules.rule_inputs import KnownHang, KnownRank
from trainguard.rules.rule_result import FactSheet, JudgedKind, Parts, Words
from trainguard.rules.windows import or_undecided

NAMED_RANKS, NAMED_FAULTS = 4, 2

# Faults of a GPU that may hold up a collective, by their kind; a throttled GPU goes on.
GPU_FAULTS = frozenset({"lost", "vanished", "unanswered", "xid", "xid_after_reset", "ecc", "rows", "link"})

# By node the fault of a GPU there: its kind and facts.
GpuFaults = Mapping[str, tuple[str, tuple[Fact, ...]]]


def facts_of(hang: KnownHang, faults: GpuFaults) -> tuple[Fact, ...]:
    """Return the facts, the most important first; those of the culprits of the first one's kind."""
    alike = [each for each in hang.named if each.kind == hang.named[0].kind]
    broken = [(node, *faults[node]) for node in _at_fault(alike, faults)]
    return (
        *(_culprits(hang, alike) if alike else ()),
        *_counted("ranks_waiting", hang.waiting),
        *_operation("awaited", hang),
        *(_of_gpu("gpu_fault", kind, node, facts[0]) for node, kind, facts in broken),
        *(_of_gpu("gpu_xid", facts[0].value, node, facts[0]) for node, kind, facts in broken if kind.startswith("xid")),
        *(_operation("culprit", alike[0]) if alike else ()),
        *_counted("ranks_without_dump", hang.without_dump),
        *_counted("dumps_left_out", hang.left_out),
    )


def cause_of(hang: KnownHang) -> str:
    """Return what names the cause: the same for the same ranks, whatever else becomes known of them."""
    return ",".join(str(rank) for rank in sorted(each.rank for each in hang.named))


def _culprits(hang: KnownHang, alike: list[KnownRank]) -> Iterator[Fact]:
    first = alike[0]
    yield Fact(name="culprit_kind", value=first.kind)
    # Of more than are kept other kinds are not counted apart.
    count = len(alike) if len(hang.named) == hang.culprits else hang.culprits
    yield Fact(name="culprit_ranks", value=count, unit="ranks")
    for each in alike[:NAMED_RANKS]:
        yield Fact(name="culprit_rank", value=each.rank, node=each.node or None)
    if first.line:
        yield Fact(name="culprit_line", value=first.line)
        yield Fact(name="culprit_doing", value=first.doing)


def _operation(whose: str, held: KnownHang | KnownRank) -> Iterator[Fact]:
    """Yield an operation, its number, and its group, as far as they are known."""
    if held.operation:
        yield Fact(name=f"{whose}_operation", value=held.operation)
        if held.sequence is not None:
            yield Fact(name=f"{whose}_sequence", value=held.sequence)
        if held.group:
            yield Fact(name=f"{whose}_group", value=held.group)


def _counted(name: str, count: int) -> tuple[Fact, ...]:
    return (Fact(name=name, value=count, unit="ranks"),) if count else ()


def _at_fault(alike: list[KnownRank], faults: GpuFaults) -> list[str]:
    """Return the culprits' nodes with a fault of a GPU; of all nodes, where no rank is named."""
    nodes = dict.fromkeys(each.node for each in alike) if alike else sorted(faults)
    return [node for node in nodes if node in faults and faults[node][0] in GPU_FAULTS][:NAMED_FAULTS]


def _of_gpu(name: str, value: float | str, node: str, of: Fact) -> Fact:
    return Fact(name=name, value=value, node=node, device=of.device, start=of.start, end=of.end)


_DOES = {
    "unfinished": "{has} not finished {own}, which others of its group {others} finished",
    "mismatched": "{enters} {own} where the others {enter} another operation, type or size",
    "other_order": "{waits} in {own}, which the others {enter} only later",
    "not_entered": "{has} finished {own} and {has} not entered the next operation",
    "no_dump": "{has} left no dump",
    "elsewhere": "{is} at {line}, unlike the others",
    "dead": "{is} dead, as NCCL RAS says",
    "unresponsive": "{does} not answer NCCL RAS",
    "behind": "{has} launched {own}, fewer than the others",
}
# Of one and of several ranks, now and in the past.
_VERBS = {
    "has": ("has", "have", "had", "had"),
    "is": ("is", "are", "was", "were"),
    "does": ("does", "do", "did", "did"),
    "enters": ("enters", "enter", "entered", "entered"),
    "waits": ("waits", "wait", "waited", "waited"),
}

_LATE = "Look at the stacks of {ranks} for a lock, a data loader, a checkpoint, a loop that ended early."
_ADVICE = {
    "unfinished": "Look at the GPU and the link of {ranks}: XID errors, ECC, NVLink, network adapter. Start the "
    "job without that node if they show a fault.",
    "mismatched": "Compare what the ranks call there: a branch, a shape or a type that differs by rank.",
    "other_order": "Let all ranks call the collectives in one order; look for a branch that depends on the rank.",
    "not_entered": _LATE,
    "behind": _LATE,
    "no_dump": "Look for the end of {ranks}: killed, out of memory, or stopped. The node's log and exit code say it. "
    "Start the job without that node if it is gone.",
    "dead": "Look for the end of {ranks}: killed, out of memory, or a node that is gone. Its log and exit code say it. "
    "Start the job without that node if it is gone.",
    "unresponsive": "Look whether the process of {ranks} is stopped, and whether its node and its network answer.",
}
_AT = {
    "data": "It waits for data at {line}: look at its data loader, its workers and its storage.",
    "checkpoint": "It writes or reads a checkpoint at {line}: look at its storage, and let all ranks save together.",
    "lock": "It waits for a lock, a queue or a process at {line}: look at who holds it.",
    "network": "It waits for the network at {line}.",
    "communication": "It waits in another transfer at {line}: look for ranks that are not in it.",
    "own_code": "It is at {line}: look why only this rank is there.",
}
_FAULTS = {
    "lost": "was lost by its driver",
    "vanished": "has vanished",
    "unanswered": "does not answer its driver",
    "xid": "reported XID {xid}",
    "xid_after_reset": "reported XID {xid}",
    "ecc": "had uncorrectable ECC errors",
    "rows": "could not remap a faulty memory row",
    "link": "has lost lanes of its link",
}
# Kinds of which the line of code says what to do.
_BY_LINE = frozenset({"not_entered", "elsewhere", "behind"})

_BY_GPU = frozenset({"unfinished", "no_dump", "dead", "unresponsive"})
# Kinds that a fault of a GPU explains, and those that none does.
_BY_PROGRAM = frozenset({"mismatched", "other_order"})


def who(sheet: FactSheet) -> str:
    """Say which ranks hold up which others, in what, without a full stop; that nobody is named, where that is known."""
    kind = sheet.get("culprit_kind")
    if kind is None:
        return _nobody(sheet)
    several = sheet.count("culprit_ranks") > 1
    verbs = {name: forms[int(several) + 2 * int(sheet.past)] for name, forms in _VERBS.items()}
    others = {"others": "had", "enter": "entered"} if sheet.past else {"others": "have", "enter": "enter"}
    does = _DOES[str(kind.value)].format(own=_own(sheet), line=_line(sheet), **others, **verbs)
    left_out = sheet.say_if("dumps_left_out", "; {dumps_left_out:dump} {was/is} not read")
    return f"{_ranks(sheet)} {does}{_waiting(sheet)}{left_out}"


def what_to_do(sheet: FactSheet) -> str:
    kind, fault = sheet.get("culprit_kind"), sheet.get("gpu_fault")
    has_line = sheet.get("culprit_line") is not None
    if fault is not None and (kind is None or kind.value in _BY_GPU or not (has_line or kind.value in _BY_PROGRAM)):
        return f"Leave out {fault.node}: {_fault(sheet, fault)}."
    more = "" if fault is None else f" On {fault.node} {_fault(sheet, fault)}."
    return _without_fault(sheet) + more


def _without_fault(sheet: FactSheet) -> str:
    kind = sheet.get("culprit_kind")
    if kind is None:
        return "Look at the stacks of all ranks for the line that each is in." if sheet.get("awaited_operation") else ""
    if sheet.get("culprit_line") is not None and kind.value in _BY_LINE:
        doing = str(sheet["culprit_doing"].value)
        return _AT.get(doing, _AT["own_code"]).format(line=_line(sheet))
    return _ADVICE[str(kind.value)].format(ranks=_ranks(sheet))


def _fault(sheet: FactSheet, fault: Fact) -> str:
    xid = sheet.get("gpu_xid")
    found = _FAULTS[str(fault.value)].format(xid="" if xid is None else xid.value)
    return f"{fault.device or 'a GPU'} {found}"


def _ranks(sheet: FactSheet) -> str:
    """Say the ranks that are named, with their nodes where those are known, and how many more there are."""
    facts = sheet.all("culprit_rank")
    nodes = list(dict.fromkeys(each.node for each in facts))
    more = sheet.count("culprit_ranks") - len(facts)
    named = ", ".join(str(each.value) for each in facts) + (f" and {more:,} more" if more else "")
    where = f" of {', '.join(str(node) for node in nodes)}" if None not in nodes else ""
    return f"{'rank' if len(facts) + more == 1 else 'ranks'} {named}{where}"


def _own(sheet: FactSheet) -> str:
    operation = sheet.get("culprit_operation")
    if operation is None:
        return "all that was entered"
    if sheet["culprit_kind"].value == "behind":
        return f"{sheet.count('culprit_sequence'):,} {operation.value}"
    return f"{operation.value} {sheet.count('culprit_sequence'):,} of group {sheet.name('culprit_group')}"


def _line(sheet: FactSheet) -> str:
    line = sheet.get("culprit_line")
    return "another line" if line is None else str(line.value)


def _waiting(sheet: FactSheet) -> str:
    waiting = sheet.get("ranks_waiting")
    if waiting is None:
        return ""
    one, several, past, _ = _VERBS["waits"]
    verb = past if sheet.past else one if waiting.value == 1 else several
    within = f", in {_awaited(sheet)}" if sheet.get("awaited_operation") is not None else ""
    return f"; {counted(int(waiting.value), 'rank')} {verb}{within}"


def _awaited(sheet: FactSheet) -> str:
    return f"{sheet.name('awaited_operation')} {sheet.count('awaited_sequence'):,} of {sheet.name('awaited_group')}"


def _nobody(sheet: FactSheet) -> str:
    if sheet.get("awaited_operation") is None:
        waits = "waited" if sheet.past else "waits"
        return f"no rank {waits} in any operation, so no rank can be named"
    waiting = counted(sheet.count("ranks_waiting"), "rank") if sheet.get("ranks_waiting") is not None else "ranks"
    wait, are, holds = ("waited", "were", "held") if sheet.past else ("wait", "are", "holds")
    return (
        f"{waiting} {wait} in {_awaited(sheet)}, and all of those that left a dump {are} in it: a link, a GPU, or a "
        f"rank without a dump {holds} them up"
    )


class HungKind(JudgedKind):
    """Findings of HungJob on a node or a job; the first three fire."""

    SPINS = "spins", Status.FIRED
    WAITS_FOR_IDLE = "waits_for_idle", Status.FIRED
    STOPPED = "stopped", Status.FIRED
    STANDS_STILL = "stands_still"
    PAUSES = "pauses"
    NEWEST_SAMPLE = "newest_sample"
    WORKS = "works"
    NOT_KNOWN = "not_known", Status.WARMING_UP
    NO_POWER = "no_power", Status.NOT_APPLICABLE
    NO_SAMPLES = "no_samples", Status.WAITING_FOR_DATA


@or_undecided
def text(sheet: FactSheet) -> Words:
    kind = HungKind(sheet.kind)
    if kind in _CALM:
        return Words(sheet.say(_CALM[kind], **_PARTS))
    return sheet.fill(_HUNG, look=_LOOKS[kind], **_PARTS)


def _named(sheet: FactSheet, what: str, text: str) -> str:
    """Say a text with ``{names}``, those of processes, nodes or GPUs; nothing where there are none."""
    name, counted_as = _NAMED[what]
    count = sheet.get(counted_as)
    if count is None or not count.value:
        return ""
    shown = [str(fact.value) for fact in sheet.all(name)]
    more = int(count.value) - len(shown)
    return sheet.say(text, names=", ".join(shown) + (f" and {more} more" if more else ""))


_NAMED = {
    "late": ("rank_behind", "ranks_behind"),
    "silent": ("silent_node", "silent_nodes"),
    "idle": ("idle_gpu", "gpus_idle"),
}


def _has_ranks(sheet: FactSheet) -> bool:
    return sheet.get("culprit_kind") is not None or sheet.get("awaited_operation") is not None


def _first(sheet: FactSheet) -> str:
    if _has_ranks(sheet):
        return what_to_do(sheet)
    found = _named(sheet, "late", "{names}") or _named(sheet, "silent", "{names}")
    waits = sheet.kind == HungKind.WAITS_FOR_IDLE and sheet.number("gpus_idle") <= sheet.number("gpus_waiting")
    found = found or (_named(sheet, "idle", "{names}") if waits else "")
    if sheet.past:
        return f"Look at {found}." if found else "Look at the log of each rank for what it waited for."
    return f"Look at {found} first." if found else "Take stack traces of all ranks (py-spy dump) first."


_GET_DUMPS = (
    "With TORCH_FR_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT, or trainguard-collector, dumps name the rank: see "
    "docs/hangs.md."
)


def _paused(sheet: FactSheet) -> str:
    if sheet["pause_length"].node is not None:
        return sheet.say_if("hosts_at_work", ", and its host computes, reads, writes or sends")
    return sheet.say_if("hosts_at_work", ", and hosts compute, read, write or send")


def _busy(sheet: FactSheet) -> str:
    one = sheet.count("gpus_waiting") == 1
    power = sheet.say_if("power_at_work", ", of {power_at_work} W at work")
    return sheet.say(
        "for {standstill_time} {gpus_waiting:GPU} {looked/" + ("has" if one else "have") + " looked} busy at {power} W"
        "{each}{power_known}",
        each="" if one else " each",
        power_known=power or sheet.say(", of a limit of {power_limit} W"),
    )


_LOOKS: Mapping[HungKind, Callable[[FactSheet], str]] = {
    HungKind.SPINS: lambda sheet: f"{_busy(sheet)}, as in a collective that does not end, or a kernel that only spins",
    HungKind.WAITS_FOR_IDLE: lambda sheet: (
        _busy(sheet)
        + _named(
            sheet,
            "idle",
            ", and {names} {was/is} idle" if sheet.count("gpus_idle") == 1 else ", and {names} {were/are} idle",
        )
    ),
    HungKind.STOPPED: lambda sheet: sheet.say(
        "for {standstill_time} no GPU {worked/has worked}, and the hosts neither {computed, read, wrote nor sent/"
        "compute, read, write nor send}"
    ),
}
_RESTART = "Stop the job and restart it from its last checkpoint: it is paid for and does not go on."
_HUNG = Words(
    "{stopped}{look}{behind}{gone}{ranks}.",
    "{first}{restart} Set a timeout of collectives (TORCH_NCCL_ASYNC_ERROR_HANDLING=1, the timeout of "
    "init_process_group), so that it fails by itself, and replace the node if the same one hangs again.{next_time}",
    "the job hung",
)
_PARTS: Parts = {
    "stopped": lambda sheet: sheet.say_if("last_step_end", "steps {had/have} stopped: "),
    "behind": lambda sheet: _named(sheet, "late", "; behind in steps: {names}"),
    "gone": lambda sheet: _named(sheet, "silent", "; no samples any more from {names}"),
    "ranks": lambda sheet: f"; {who(sheet)}" if _has_ranks(sheet) else "",
    "first": _first,
    "restart": lambda sheet: "" if sheet.past else f" {_RESTART}",
    "next_time": lambda sheet: "" if _has_ranks(sheet) else f" {_GET_DUMPS}",
    "busy": _paused,
    "of_node": lambda sheet: "" if sheet.facts[0].node is None else sheet.say(" of {node}"),
    "on_node": lambda sheet: "" if sheet.facts[0].node is None else sheet.say("{node}: "),
    "gpus_at_work": lambda sheet: sheet.say_if("nodes", "GPUs of {nodes:node}") or sheet.say("the GPUs of {node}"),
    "lacking": lambda sheet: sheet.say(
        "its GPUs have not worked for {minutes_at_work.threshold:g} minutes with samples of power yet"
        if sheet.facts[0].node is None
        else "no GPU of {node} has worked for {minutes_at_work.threshold:g} minutes with a sample of power"
    ),
}
_CALM: Mapping[HungKind, str] = {
    HungKind.NO_SAMPLES: "no system metrics were written.",
    HungKind.NO_POWER: (
        "{on_node}no power of the GPUs was collected, which the rule needs: trainguard-collector, dcgm-exporter, W&B "
        "and MLflow write it."
    ),
    HungKind.NOT_KNOWN: "{lacking}.",
    HungKind.WORKS: "{gpus_at_work} work, by their utilization or their power.",
    HungKind.STANDS_STILL: "no GPU has worked for {standstill_time}; that counts from {standstill_time.limit} on.",
    HungKind.PAUSES: "no GPU{of_node} has worked for {pause_length}{busy}.",
    HungKind.NEWEST_SAMPLE: "no GPU of {node} works in its newest sample.",
}
