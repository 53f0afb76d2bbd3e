"""The figures of other tools beside ours and those of the events themselves: ``python -m tests.support.peer_table``.

Prints the tables of ``tests/kernels/peers.md``. What the events say is added up here, by nothing of the product.
"""

import json
import re
import sys
from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from typing import Any

from tests.support.kernel_traces import FOLDER, real_profile, real_text, real_trace
from trainguard.kernels.columns import WorkKind
from trainguard.kernels.times.intervals import merged

PEERS = json.loads((FOLDER / "peers.json").read_text("utf-8"))
TRACELENS = json.loads((FOLDER / "peers" / "tracelens.json").read_text("utf-8"))
_SENDS = re.compile(r"nccl|rccl", re.IGNORECASE)
WHY = {
    "a100_alexnet_cuda_sync": "takes `Stream Wait Event` for computation",
    "a100_event_sync_multistream": "takes `Stream Wait Event` for computation",
    "a100_triton_kernel": "takes the operator of the same name for the kernel",
    "mi300_resnet_ddp8_rank0_stack": "drops 752 kernels that no step launched; whole microseconds",
    "v100_rank1of2_diff_test": "drops 542 kernels that no step launched",
}


def added(events: Iterable[tuple[Decimal, Decimal]]) -> int:
    """Return how long any of some events runs, nanoseconds."""
    total, until = Decimal(0), Decimal("-Infinity")
    for start, lasts in sorted(events):
        total += max(start + lasts - max(start, until), Decimal(0))
        until = max(until, start + lasts)
    return round(1_000 * total)


@cache
def of_events(trace: str) -> tuple[int, int]:
    """Return how long a trace's kernels compute, nanoseconds, by its text alone, and how many there are."""
    document = json.loads(real_text(trace), parse_float=Decimal)
    rows: list[dict[str, Any]] = document["traceEvents"] if isinstance(document, dict) else document
    kernels = [each for each in rows if str(each.get("cat", "")).lower() == "kernel" and each.get("ph") == "X"]
    computing = [each for each in kernels if not _SENDS.search(each["name"])]
    return added((Decimal(each["ts"]), Decimal(each["dur"])) for each in computing), len(computing)


def of_product(trace: str) -> int:
    """Return the same as the product reads it."""
    gpu = real_trace(trace).gpu
    mine = gpu.kind == WorkKind.COMPUTE
    return int(merged(gpu.start[mine], gpu.end[mine]).total)


def of_hta() -> dict[str, int]:
    """Return the computation that HTA finds in whole traces, microseconds."""
    return {each["trace"]: each["compute_us"] for each in PEERS["hta"] if each["include_last"]}


def operators() -> list[tuple[dict[str, Any], int, int, int]]:
    """Return TraceLens' operators, each with our nanoseconds, operations and bytes of all calls."""
    found = []
    for peer in TRACELENS["operators"]:
        mine = next(
            each
            for each in real_profile(peer["trace"]).operators
            if each.name == peer["name"] and json.loads(each.shapes)[: len(peer["dims"])] == peer["dims"]
        )
        found.append((peer, mine.kernel_ns, mine.flops or 0, mine.bytes or 0))
    return found


def lines() -> list[str]:
    """Return the tables of the page."""
    said = ["| trace | kernels | the events | TrainGuard | HTA | why HTA differs |", "|---|--:|--:|--:|--:|---|"]
    for trace, hta in sorted(of_hta().items()):
        truth, count = of_events(trace)
        why = WHY.get(trace, "whole microseconds" if hta * 1_000 != truth else "")
        said.append(f"| {trace} | {count:,} | {truth / 1e3:,.3f} | {of_product(trace) / 1e3:,.3f} | {hta:,} | {why} |")
    said += [
        "",
        "| operator | calls | us, both | MFLOP a call | TraceLens' | MB a call, both |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for peer, ns, flops, moved in operators():
        count, dims = peer["count"], ", ".join("x".join(map(str, each)) for each in peer["dims"])
        said.append(
            f"| {peer['name']} ({dims}) | {count} | {ns / 1e3:,.3f} | {flops / count / 1e6:,.6g} | "
            f"{peer['flops'] / 1e6:,.6g} | {moved / count / 1e6:,.6g} |"
        )
    return said


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
