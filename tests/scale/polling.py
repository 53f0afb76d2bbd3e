"""What an hour costs when jobs are listed instead of announced: ``python -m tests.scale.polling NODES``.

A prototype on the instrumented stores of the test of a node's hour, with its real evaluator. Every third minute a poll
lists the job's objects and sends one message for each node that has new ones, of its latest; the evaluator reads the
others by their keys. A poll lists the hour's folder and the one before, as a whole or from a cursor 15 minutes back,
which does not find what comes later than that. LIST is counted with all nodes, the rest of 128 nodes by the difference
that a node makes, as in that test.
"""

import io
import sys
import warnings
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from tests.functional.test_cost_of_a_node_hour import (
    BEFORE,
    FEW,
    HOUR,
    MESSAGES_A_BATCH,
    PLATFORM_LOG_BYTES,
    SEVERAL,
    hour_of,
)
from tests.support.counted_network import (
    CALLS,
    MESSAGES_A_REQUEST,
    OF_THE_JOB,
    OF_THE_SCHEDULER,
    CountedNetwork,
    Counts,
    minute_of,
)
from tests.support.small_job import BUCKET, JOB, START, Upload, describe
from trainguard.core.layout import hour_folder

EVERY, MINUTE_S, HOUR_S, CURSOR_BACK_S = 3, 60, 3_600, 900
PAGE_KEYS = 1_000
FOLDER = f"{JOB}/profiler-output/system/incremental/"


@dataclass
class Poller:
    """Lists the hour's folder and the one before as a whole; counts the pages, and those of a listing from a cursor."""

    network: CountedNetwork
    known: set[str] = field(default_factory=set)
    pages: Counter[str] = field(default_factory=Counter)

    def poll(self, minute: int) -> None:
        """List, and announce the latest new object of each node."""
        newest: dict[str, str] = {}
        for folder in (hour_folder(minute - HOUR_S), hour_folder(minute)):
            keys = self._listed(f"{FOLDER}{folder}/", "", "whole folders")
            newest |= {key.split(".")[-2]: key for key in keys if key not in self.known}
            self.known.update(keys)
        begin = minute - CURSOR_BACK_S
        for folder in sorted({hour_folder(begin), hour_folder(minute)}):
            place = f"{FOLDER}{folder}/"
            self._listed(place, f"{place}{begin:010d}", "from a cursor")
        for key in newest.values():
            self.network.announce(Upload(self.network.now, key, b""), self.network.now)

    def _listed(self, place: str, after: str, how: str) -> list[str]:
        keys = [each.key for each in self.network.world.objects.list(BUCKET, place, after)]
        self.pages[how] += max(1, -(-len(keys) // PAGE_KEYS))
        return keys


def pages_of(nodes: int) -> Counter[str]:
    """Return the pages of an hour's listings of a job by their way."""
    poller = Poller(CountedNetwork())
    for index in range(BEFORE + HOUR):
        at = START + MINUTE_S * index
        for node in range(1, nodes + 1):
            poller.network.put(Upload(at + 62.0, _key(at, node), b""))
        if index == BEFORE:
            poller.pages.clear()
        if index % EVERY == EVERY - 1:
            poller.poll(at)
    return poller.pages


@cache
def polled(nodes: int) -> Counts:
    """Return what an hour of a polled job bills, functions' time and LIST left out."""
    network = CountedNetwork()
    description = replace(describe({}), instance_count=nodes, framework_profiling=False)
    network.world.training_jobs.set(replace(description, profiling_interval_ms=15_000))
    random, poller, begin = np.random.default_rng(1), Poller(network), 0
    for index in range(BEFORE + HOUR):
        at = START + MINUTE_S * index
        if index == BEFORE:
            begin = len(network.world.faults.calls)
            network.counts.clear()
        for node in range(1, nodes + 1):
            network.put(Upload(at + 62.0, _key(at, node), minute_of(random, index, node)))
        network.run_until(at + 84.0, batch_s=20.0)
        # While a job starts each minute counts, and a poller would look as often.
        if index < BEFORE or index % EVERY == EVERY - 1:
            poller.poll(at)
        network.run_until(at + 85.0, batch_s=20.0)
        network.run_scheduler()
    counts = Counts(network.counts)
    for call, times in Counter(network.world.faults.calls[begin:]).items():
        if call not in OF_THE_SCHEDULER | OF_THE_JOB | {"ReadableObjects.list"}:
            for unit, amount in CALLS[call].items():
                counts[unit] += times * amount
    return counts


def _key(at: int, node: int) -> str:
    return f"{FOLDER}{hour_folder(at)}/{at}.algo-{node}.json"


def billed(nodes: int) -> Counts:
    """Return the counts of a job, with those of the polls and Lambda's own lines of log."""
    few, several = polled(FEW), polled(SEVERAL)
    counts = Counts(few)
    if nodes > FEW:
        more = (nodes - FEW) / (SEVERAL - FEW)
        counts = Counts({unit: few[unit] + (several[unit] - few[unit]) * more for unit in few.keys() | several.keys()})
        messages = nodes * HOUR / EVERY
        counts["queue_request"] = messages * (1 + 2 / MESSAGES_A_REQUEST)
        counts["invocation"] = messages / MESSAGES_A_BATCH + HOUR / EVERY
        counts["log_gb"] = several["log_gb"] / several["invocation"] * counts["invocation"]
    counts["invocation"] += HOUR / EVERY
    counts["log_gb"] += counts["invocation"] * PLATFORM_LOG_BYTES / 1e9
    return counts


def main(nodes: int) -> None:
    """Print what a poll's hour counts and costs."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        counts, pages = billed(nodes), pages_of(nodes)
    print(f"{nodes} nodes: " + ", ".join(f"{unit} {amount:,.6g}" for unit, amount in sorted(counts.items())))
    for how, number in pages.items():
        whole = Counts({**counts, "object_put": counts["object_put"] + number})
        listed = Counts(object_put=number).cost
        print(f"{how}: {number} LIST, {listed / nodes:.6f} USD a node; together {hour_of(nodes, whole) / nodes:.6f}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
