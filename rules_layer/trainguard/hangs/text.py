"""Sentences about a job that stands still, from the facts of its verdict."""

import msgspec

from trainguard.core.units import counted
from trainguard.hangs.ras import RasKind
from trainguard.hangs.verdict import Culprit, HangVerdict

_MOST_NAMED = 8

_DOES = {
    "unfinished": ("has not finished {own}, which others of its group have finished", "have"),
    "mismatched": ("enters {own} where the others enter another operation, type or size", "enter"),
    "other_order": ("waits in {own}, which the others enter only later", "wait"),
    "not_entered": ("has finished {own} and has not entered the next operation", "have"),
    "no_dump": ("has left no dump", "have"),
    "elsewhere": ("is at {line}, unlike the others", "are"),
    "dead": ("is dead, as NCCL RAS says", "are"),
    "unresponsive": ("does not answer NCCL RAS", "do"),
    "behind": ("has launched {own}, fewer than the others", "have"),
}

_ADVICE = {
    "unfinished": "Look at the GPU and the link of {ranks}: XID errors, ECC, NVLink, network adapter. Restart without "
    "that node.",
    "mismatched": "Compare what the ranks call there: a branch, a shape or a type that differs by rank.",
    "other_order": "Let all ranks call the collectives in one order; look for a branch that depends on the rank.",
    "not_entered": "Take the stacks of {ranks}: look for a lock, a data loader, a checkpoint, a loop that ended early.",
    "dead": "Look for the end of {ranks}: killed, out of memory, or a node that is gone. Its log and exit code say it.",
    "unresponsive": "Look whether the process of {ranks} is stopped, and whether its node and its network answer.",
    "behind": "Take the stacks of {ranks}: look for a lock, a data loader, a checkpoint, a loop that ended early.",
    "no_dump": "Look for the end of {ranks}: killed, out of memory, or stopped. The node's log and exit code say it.",
}

_AT = {
    "data": "It waits for data at {line}: look at its data loader, its workers and its storage.",
    "checkpoint": "It writes or reads a checkpoint at {line}: look at its storage, and let all ranks save together.",
    "lock": "It waits for a lock, a queue or a process at {line}: look at who holds it.",
    "network": "It waits for the network at {line}.",
    "own_code": "It is at {line}: look why only this rank is there.",
}


def with_words(verdict: HangVerdict) -> HangVerdict:
    """Return the verdict with its sentences."""
    return msgspec.structs.replace(verdict, reason=_reason(verdict), advice=_advice(verdict))


def _reason(verdict: HangVerdict) -> str:
    """Return one sentence: who holds up whom, in what."""
    if not verdict.details:
        return _nobody(verdict)
    first = verdict.details[0]
    alike = [each.rank for each in verdict.details if each.kind == first.kind]
    one, several = _DOES[first.kind]
    does = one if len(alike) == 1 else " ".join([several, *one.split(" ")[1:]])
    does = does.format(own=_own(first), line=first.line)
    return f"{said_ranks(alike).capitalize()} {does}{_waiting(verdict)}."


def _advice(verdict: HangVerdict) -> str:
    """Return what to do first."""
    if not verdict.details:
        return "Take the stacks of all ranks: they say which line each is in." if verdict.operation else ""
    first = verdict.details[0]
    ranks = said_ranks([each.rank for each in verdict.details if each.kind == first.kind])
    if first.line and first.kind in {"not_entered", "elsewhere", "behind"}:
        return _AT.get(first.doing, _AT["own_code"]).format(line=first.line)
    return _ADVICE[first.kind].format(ranks=ranks)


def said_ranks(ranks: list[int]) -> str:
    """Return ranks in words: few are named, of many the first and how many more there are."""
    named = ", ".join(map(str, ranks[:_MOST_NAMED]))
    more = f" and {len(ranks) - _MOST_NAMED:,} more" if len(ranks) > _MOST_NAMED else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {named}{more}"


def _own(first: Culprit) -> str:
    if not first.operation:
        return "all that was entered"
    if first.kind == RasKind.BEHIND:
        return f"{first.sequence or 0:,} {first.operation}"
    return f"{first.operation} {first.sequence:,} of group {first.group}"


def _waiting(verdict: HangVerdict) -> str:
    if not verdict.victims:
        return ""
    waiting = counted(len(verdict.victims), "rank")
    verb = "waits" if len(verdict.victims) == 1 else "wait"
    return f"; {waiting} {verb}, in {_operation(verdict)}" if verdict.operation else f"; {waiting} {verb}"


def _operation(verdict: HangVerdict) -> str:
    named = verdict.group_description or verdict.group
    return f"{verdict.operation} {verdict.sequence:,} of {named}"


def _nobody(verdict: HangVerdict) -> str:
    if verdict.operation:
        ranks = counted(len(verdict.victims), "rank")
        return (
            f"{ranks} wait in {_operation(verdict)}, and all of those that left a dump are in it: a link, a GPU, or a "
            "rank without a dump holds them up."
        )
    return "No rank waits in any operation, so no rank can be named."
