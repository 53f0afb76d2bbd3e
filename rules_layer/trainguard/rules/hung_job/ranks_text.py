"""The words about the ranks of a job that stands still, by the facts of its dumps."""

from trainguard.core.finding import Fact
from trainguard.core.units import counted
from trainguard.rules.rule_result import FactSheet

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

_LATE = "Take the stacks of {ranks}: look for a lock, a data loader, a checkpoint, a loop that ended early."
_ADVICE = {
    "unfinished": "Look at the GPU and the link of {ranks}: XID errors, ECC, NVLink, network adapter. Restart without "
    "that node if they show a fault.",
    "mismatched": "Compare what the ranks call there: a branch, a shape or a type that differs by rank.",
    "other_order": "Let all ranks call the collectives in one order; look for a branch that depends on the rank.",
    "not_entered": _LATE,
    "behind": _LATE,
    "no_dump": "Look for the end of {ranks}: killed, out of memory, or stopped. The node's log and exit code say it. "
    "Restart without that node if it is gone.",
    "dead": "Look for the end of {ranks}: killed, out of memory, or a node that is gone. Its log and exit code say it. "
    "Restart without that node if it is gone.",
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
    return f"{_ranks(sheet)} {does}{_waiting(sheet)}{_left_out(sheet)}"


def what_to_do(sheet: FactSheet) -> str:
    """Say what to do about it first."""
    kind, fault = sheet.get("culprit_kind"), sheet.get("gpu_fault")
    has_line = sheet.get("culprit_line") is not None
    if fault is not None and (kind is None or kind.value in _BY_GPU or not (has_line or kind.value in _BY_PROGRAM)):
        return f"Leave out {fault.node}: {_fault(sheet, fault)}."
    more = "" if fault is None else f" On {fault.node} {_fault(sheet, fault)}."
    return _without_fault(sheet) + more


def _without_fault(sheet: FactSheet) -> str:
    kind = sheet.get("culprit_kind")
    if kind is None:
        return "Take the stacks of all ranks: they say which line each is in." if sheet.get("awaited_operation") else ""
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


def _left_out(sheet: FactSheet) -> str:
    return sheet.say_if("dumps_left_out", "; {dumps_left_out:dump} {was/is} not read")


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
