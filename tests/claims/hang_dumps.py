"""Recomputes what HungJob says about dumps and stacks, from the files themselves."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.claims.context import Context, Expected, Fact, Raw, Recompute
from tests.claims.gpu_faults import IN_A_ROW, Gpu, faults_of
from tests.claims.work import CLOCK_S

_DUMP = re.compile(r"nccl_trace_rank_(\d+)(?:\.json)?")
_STACK = re.compile(r"stack_rank_(\d+)\.(?:txt|json)")
# Kinds of ranks that are in an operation themselves.
_OWN_KINDS = {"unfinished", "other_order"}
# An XID that a reset of the GPU ends.
_ENDED_BY_RESET = 94


@dataclass
class Files:
    """Dumps in JSON, and stacks, by rank, and the node that each dump lies under."""

    dumps: dict[int, dict[str, Any]] = field(default_factory=dict)
    stacks: dict[int, str] = field(default_factory=dict)
    nodes: dict[int, str] = field(default_factory=dict)

    def open_entries(self, rank: int) -> list[dict[str, Any]]:
        return [each for each in self.dumps[rank]["entries"] if each["state"] != "completed"]


def files_of(raw: Raw) -> Files:
    if "hang dumps" not in raw.cached:
        found = Files()
        for path in sorted((raw.job.folder / "hang-dumps").rglob("*")):
            _read(path, raw.job.folder, found)
        raw.cached["hang dumps"] = found
    held: Files = raw.cached["hang dumps"]
    return held


def _read(path: Path, folder: Path, found: Files) -> None:
    dump, stack = _DUMP.fullmatch(path.name), _STACK.fullmatch(path.name)
    if dump:
        found.dumps[int(dump[1])] = json.loads(path.read_text("utf-8"))
        found.nodes[int(dump[1])] = path.relative_to(folder).parts[1]
    elif stack:
        found.stacks[int(stack[1])] = path.read_text("utf-8")


def _awaited(context: Context) -> tuple[str, int, str]:
    named = (context.first(f"awaited_{what}") for what in ("operation", "sequence", "group"))
    operation, sequence, group = (None if each is None else each["value"] for each in named)
    return str(operation), int(sequence or 0), str(group)


def _is(entry: dict[str, Any], operation: str, sequence: int, group: str) -> bool:
    names = (str(entry["process_group"][0]), str(entry["process_group"][1]))
    number = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
    return entry["profiling_name"].split(":")[-1].split(" ")[0] == operation and number == sequence and group in names


def _in_awaited(context: Context) -> set[int]:
    files, awaited = files_of(context.raw), _awaited(context)
    return {rank for rank in files.dumps if any(_is(each, *awaited) for each in files.open_entries(rank))}


def _waiting(context: Context, fact: Fact) -> Expected:
    """Return how many ranks have something open, without those that are named."""
    files = files_of(context.raw)
    named = {int(each["value"]) for each in context.finding["facts"] if each["name"] == "culprit_rank"}
    return float(len({rank for rank in files.dumps if files.open_entries(rank)} - named))


def _operation(context: Context, fact: Fact) -> Expected:
    return fact["value"] if _in_awaited(context) else "no rank is in it"


def _kind(context: Context, fact: Fact) -> Expected:
    files = files_of(context.raw)
    for each in context.finding["facts"]:
        if each["name"] == "culprit_rank" and not _is_kind(files, int(each["value"]), str(fact["value"])):
            return f"rank {each['value']} is of another kind"
    return str(fact["value"])


def _is_kind(files: Files, rank: int, kind: str) -> bool:
    if kind == "no_dump":
        return rank not in files.dumps
    if rank not in files.dumps:
        return False
    return (
        bool(files.open_entries(rank)) if kind in _OWN_KINDS else kind != "not_entered" or not files.open_entries(rank)
    )


def _rank(context: Context, fact: Fact) -> Expected:
    """A named rank is not in what the others wait in, unless it is the only one that stands in it."""
    files, rank = files_of(context.raw), int(fact["value"])
    node = fact.get("node")
    if rank in files.nodes and node != files.nodes[rank]:
        return f"a rank of {files.nodes[rank]}"
    within = _in_awaited(context)
    first = context.first("culprit_kind")
    may_be_in = first is not None and first["value"] != "not_entered"
    return float(rank) if rank not in within or may_be_in else "it waits itself"


def _ranks(context: Context, fact: Fact) -> Expected:
    named = sum(each["name"] == "culprit_rank" for each in context.finding["facts"])
    return float(named) if fact["value"] <= 4 else float(fact["value"])


def _without_dump(context: Context, fact: Fact) -> Expected:
    files = files_of(context.raw)
    groups = (group for dump in files.dumps.values() for group in dump["pg_config"].values())
    world = max((len(json.loads(each["ranks"])) for each in groups), default=0)
    return float(world - len(files.dumps))


def _own(what: str) -> Callable[[Context, Fact], Expected]:
    def recompute(context: Context, fact: Fact) -> Expected:
        files, rank = files_of(context.raw), context.first("culprit_rank")
        entries = [] if rank is None else files.dumps[int(rank["value"])]["entries"]
        values = {
            "operation": [each["profiling_name"].split(":")[-1].split(" ")[0] for each in entries],
            "sequence": [max(each["collective_seq_id"], each["p2p_seq_id"]) for each in entries],
            "group": [name for each in entries for name in each["process_group"]],
        }[what]
        value = fact["value"]
        return value if value in values else "it has entered nothing like it"

    return recompute


def _line(context: Context, fact: Fact) -> Expected:
    rank = context.first("culprit_rank")
    stack = "" if rank is None else files_of(context.raw).stacks.get(int(rank["value"]), "")
    place, _, function = str(fact["value"]).rpartition(" ")
    file, _, line = place.rpartition(":")
    is_in = all(each in stack for each in (file, line, function))
    return str(fact["value"]) if is_in else "its stack is not there"


def _gpu(context: Context, fact: Fact) -> Gpu:
    """Return what is known of a fact's GPU at the end of its time, or of the job's."""
    until = context.raw.job.span[1] if fact.get("to") is None else float(fact["to"])
    return faults_of(context, context.node(fact), until)[fact["device"]]


def _gpu_fault(context: Context, fact: Fact) -> Expected:
    """Return the kind of the fault, if the GPU has one of it at the end of the time that is said."""
    gpu = _gpu(context, fact)
    has = {
        "lost": gpu.lost,
        "vanished": gpu.silent >= IN_A_ROW,
        "unanswered": gpu.unanswered >= IN_A_ROW,
        "xid": bool(gpu.hardware_xids.keys() - {_ENDED_BY_RESET}),
        "xid_after_reset": _ENDED_BY_RESET in gpu.hardware_xids,
        "ecc": gpu.errors > 0.0,
        "rows": gpu.rows_failed,
        "link": any(each.lanes is not None and each.lanes < gpu.most_lanes for each in gpu.loaded),
    }
    kind = str(fact["value"])
    return kind if has.get(kind, False) else f"one of {[each for each, is_so in has.items() if is_so]}"


def _xid(context: Context, fact: Fact) -> Expected:
    """Return the code, if the GPU reported it first and last when that is said."""
    came = _gpu(context, fact).hardware_xids.get(int(fact["value"]))
    if came is None or max(abs(came[0] - fact["from"]), abs(came[1] - fact["to"])) > CLOCK_S:
        return math.nan
    return float(fact["value"])


FACTS: dict[str, Recompute] = {
    "culprit_kind": _kind,
    "culprit_rank": _rank,
    "culprit_ranks": _ranks,
    "culprit_line": _line,
    "culprit_doing": lambda context, fact: str(fact["value"]) if context.first("culprit_line") else "no line",
    "culprit_operation": _own("operation"),
    "culprit_sequence": _own("sequence"),
    "culprit_group": _own("group"),
    "awaited_operation": _operation,
    "awaited_sequence": lambda context, fact: float(fact["value"]) if _in_awaited(context) else "no rank is in it",
    "awaited_group": _operation,
    "ranks_waiting": _waiting,
    "ranks_without_dump": _without_dump,
    "gpu_fault": _gpu_fault,
    "gpu_xid": _xid,
}
