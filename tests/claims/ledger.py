"""Holds the ledger against the raw samples: its sums, and that its compute is what the GPUs' utilization says."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.claims.claim import Untrue
from tests.claims.raw import Floats, Node, RawJob, Series

# Shares of the paid time may differ by so much: 0.1 percentage points.
WITHIN_SHARE = 1e-3

SUMS_WITHIN = 1e-6

# Buckets that get busy time, too.
TAKEN_FROM_COMPUTE = ("restart", "hang", "broken", "communication", "peers")

BUCKETS = (
    *("no_samples", "restart", "hang", "broken", "compute", "start_up", "tail", "communication", "peers", "data"),
    *("checkpoint", "evaluation", "host", "idle", "unexplained"),
)


def ledger_claims(job: RawJob, report: dict[str, Any]) -> Iterator[Untrue | None]:
    """Yield, for each claim of the ledger, what is untrue of it, or None."""
    nodes = report["ledger_by_node"]
    for entry in nodes:
        yield from _sums("ledger of a node", entry["ledger"], entry["gpu_seconds"])
        yield from _node_claims(job, entry)
    whole = report["ledger"]
    if not whole:
        yield _held("ledger", "no node has one", bool(nodes), "nodes have ledgers, and the job has none")
        return
    paid = sum(entry["gpu_seconds"] for entry in nodes)
    yield from _sums("ledger", whole, paid)
    for bucket in whole:
        of_nodes = sum(_amounts(entry)[bucket["bucket"]] for entry in nodes)
        why = f"{bucket['gpu_seconds']:.3f} GPU seconds are {of_nodes:.3f} on its nodes"
        yield _held("ledger", bucket["bucket"], abs(bucket["gpu_seconds"] - of_nodes) > SUMS_WITHIN * max(paid, 1), why)
    shares = {entry["bucket"]: entry["share"] for entry in whole}
    compute, goodput = shares["compute"], report["goodput"]
    known = paid > 0.0 and shares["no_samples"] < 1.0
    wrong = (goodput is not None) != known or (known and abs(goodput - compute) > SUMS_WITHIN)
    yield _held("ledger", "goodput", wrong, f"{goodput} is not the compute of {compute}")
    lost = report["verdict"]["wasted_share"]
    if lost is not None:
        wrong = abs(lost - (1.0 - compute)) > SUMS_WITHIN
        yield _held("verdict", "wasted_share", wrong, f"{lost} and compute of {compute} are not 1")
    yield from _money(report, whole)


def _money(report: dict[str, Any], whole: list[dict[str, Any]]) -> Iterator[Untrue | None]:
    spent, known = report["cost"]["spent"], [entry["usd"] for entry in whole if entry["usd"] is not None]
    if spent is None or not known:
        yield _held("ledger", "usd", bool(known), "the ledger has prices, and the job has none")
        return
    total = sum(known)
    # A node that is paid for and has no GPU in the ledger costs money, too.
    yield _held("ledger", "usd", total > spent + 0.01, f"USD {total:.2f} of USD {spent:.2f} spent")
    claimed = sum(finding["lost"] or 0.0 for finding in report["findings"])
    wrong = claimed > spent * 1.001 + 0.01 * (1 + len(report["findings"]))
    yield _held("findings", "cost", wrong, f"findings cost USD {claimed:.2f} of USD {spent:.2f} together")
    shares = sum(finding["wasted_share"] or 0.0 for finding in report["findings"])
    lost = report["verdict"]["wasted_share"] or 0.0
    wrong = shares > lost + 2.0 * WITHIN_SHARE
    yield _held("findings", "wasted_share", wrong, f"findings claim {shares:.4f} of a loss of {lost:.4f}")


def _sums(where: str, entries: list[dict[str, Any]], paid: float) -> Iterator[Untrue | None]:
    names = [entry["bucket"] for entry in entries]
    # A node's ledger leaves out what is empty.
    expected = [name for name in BUCKETS if name in names or where == "ledger"]
    yield _held(where, "buckets", names != expected, f"they are {', '.join(names)}")
    total = sum(entry["gpu_seconds"] for entry in entries)
    yield _held(
        where, "sum", abs(total - paid) > SUMS_WITHIN * max(paid, 1.0), f"{total:.3f} of {paid:.3f} GPU seconds"
    )
    for entry in entries:
        share = entry["gpu_seconds"] / paid if paid else 0.0
        wrong = abs(entry["share"] - share) > SUMS_WITHIN or entry["gpu_seconds"] < -1e-6
        yield _held(where, entry["bucket"], wrong, f"a share of {entry['share']} of {share}")


def _node_claims(job: RawJob, entry: dict[str, Any]) -> Iterator[Untrue | None]:
    where, paid, gpus = f"ledger of {entry['node']}", entry["gpu_seconds"], entry["gpus"]
    amounts = _amounts(entry)
    node = job.nodes.get(entry["node"])
    if node is None:
        wrong = amounts["no_samples"] + amounts["start_up"] < paid - SUMS_WITHIN * max(paid, 1.0)
        yield _held(where, "no_samples", wrong, "it wrote none, and something is said about its time")
        return
    yield _held(where, "gpus", gpus < len(node.gpus), f"{gpus} are paid for, and {len(node.gpus)} were sampled")
    start, end = job.span
    paid_s, slack = paid / max(gpus, 1), job.interval_s + 1.0
    least = node.last - node.first - _without_instances(job) - slack
    wrong = not least <= paid_s <= end - start + slack
    yield _held(where, "gpu_seconds", wrong, f"{paid_s:.1f} s of a job of {end - start:.1f} s")
    if not node.gpus:
        return
    least, most = busy_seconds(node)
    taken = amounts["compute"] + sum(amounts[name] for name in TAKEN_FROM_COMPUTE)
    # What the last sample before an interruption stands for may be paid for, or not.
    within = WITHIN_SHARE * paid + node.interval_s * len(node.gpus) * len(_silences(job))
    within += sum(_doubt(series.times) for series in node.of("GPUUtilization").values())
    wrong = amounts["compute"] > most + within or taken < least - within
    why = f"{amounts['compute']:.1f} GPU seconds of compute, and the utilization is {least:.1f} to {most:.1f}"
    yield _held(where, "compute", wrong, why)
    idle = idle_seconds(node)
    extra = (gpus - len(node.gpus)) * paid_s
    wrong = amounts["idle"] > idle + extra + within + 0.01 * paid
    yield _held(where, "idle", wrong, f"{amounts['idle']:.1f} GPU seconds, and {idle + extra:.1f} were below 1 %")


def _amounts(entry: dict[str, Any]) -> dict[str, float]:
    """Return the GPU-seconds of every bucket of a node; 0 of one that its ledger leaves out."""
    return dict.fromkeys(BUCKETS, 0.0) | {each["bucket"]: each["gpu_seconds"] for each in entry["ledger"]}


def _without_instances(job: RawJob) -> float:
    """Return for how many seconds no node wrote anything: the job had no instances, or nobody can say."""
    return float(_silences(job).sum())


def _silences(job: RawJob) -> Floats:
    """Return the distances, seconds, between samples of any node that are longer than two intervals."""
    times = np.unique(np.concatenate([each.times for node in job.nodes.values() for each in node.series.values()]))
    distances: Floats = np.diff(times)
    return distances[distances > 2.0 * job.interval_s]


def busy_seconds(node: Node) -> tuple[float, float]:
    """Return the GPU seconds that utilization says at least, and at most: by how far samples stand for what follows."""
    pieces = [_integral(series, node.interval_s) for series in node.of("GPUUtilization").values()]
    return sum(least for least, _ in pieces), sum(most for _, most in pieces)


def idle_seconds(node: Node) -> float:
    """Return for how many GPU seconds samples below 1 % stand at most."""
    total = 0.0
    for series in node.of("GPUUtilization").values():
        _, most = _covered(series.times, node.interval_s)
        total += float(((100.0 - series.values) / 100.0 * most)[series.values < 1.0].sum())
    return total


def _integral(series: Series, interval_s: float) -> tuple[float, float]:
    least, most = _covered(series.times, interval_s)
    return float((series.values / 100.0 * least).sum()), float((series.values / 100.0 * most).sum())


def _covered(times: Floats, interval_s: float) -> tuple[Floats, Floats]:
    """Return for how long each sample stands, at least and at most: until the next one, but not over a gap.

    A distance is a gap when it is over twice what is usual there. What is usual is known to a factor where the
    distances change: then it may be one, or not.
    """
    distances = np.append(np.diff(times), interval_s)
    least, most = distances.copy(), distances.copy()
    least[-1] = 0.0  # the job may end right after it
    for place, distance in enumerate(distances.tolist()):
        around = [
            *distances[max(place - 8, 0) : place].tolist(),
            *distances[place + 1 : place + 2].tolist(),
            interval_s,
        ]
        usual, longest = min(around), max(around)
        if distance > max(2.0 * usual, 5.0):
            least[place] = min(distance, usual)
            most[place] = distance if distance <= max(2.2 * longest, 5.0) else min(distance, longest)
    return least, most


def _doubt(times: Floats) -> float:
    """Return for how many seconds nobody can say for which sample they stand: an interval, where these differ."""
    distances = np.diff(times)
    usual = float(np.median(distances)) if distances.size else 0.0
    return usual if float(np.mean(np.abs(distances - usual) > 0.05 * usual)) > 0.05 else 0.0


def _held(where: str, claim: str, wrong: bool, why: str) -> Untrue | None:
    return Untrue(where, claim, why) if wrong else None
