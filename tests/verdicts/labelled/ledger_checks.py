"""A report's ledger held against what was sampled: where the paid time of the described job went."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tests.verdicts.labelled import goals
from tests.verdicts.labelled.activity import node_counters, pieces_of, within
from tests.verdicts.labelled.checks import Check
from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.noise import Floats
from tests.verdicts.labelled.reported import Reported

# A node works where a GPU is at so many percent for as long: before that it starts, as when it compiles.
WORKS_PERCENT, WORK_S = 10.0, 60.0

# Buckets that utilization and the label tell exactly. All others are lost while the job works.
OUTSIDE = ("compute", "start_up", "tail", "hang", "no_samples")

# Faults of which nobody can tell whether the job hangs or only does not exit, and GPUs about the line of work.
UNDECIDED = frozenset({"memory held after training", "under-used GPUs"})

# Faults from whose onset on the job hangs, whatever its GPUs show.
ENDLESS = frozenset({"hung collective", "lost GPU"})


def ledger_checks(job: Job, report: Reported) -> Iterator[Check]:
    """Check each bucket to within one point of the paid time.

    Nothing is checked of a job whose utilization is not sampled, or of which the paid time is unknown.
    """
    if not job.machine.gpus or (job.collected is not None and job.collected.mig) or job.flaws.clock_jump is not None:
        return
    if not UNDECIDED.isdisjoint(fault.kind for fault in job.faults):
        return
    known = true_shares(job)
    said = {bucket: report.ledger.get(bucket, 0.0) for bucket in OUTSIDE}
    said["at work"] = sum(share for bucket, share in report.ledger.items() if bucket not in OUTSIDE)
    # Of two samples in a row that are missing nobody can say whether they are a gap.
    least = goals.LEDGER_WITHIN + goals.LEDGER_SAMPLES * job.interval_s / (60.0 * job.minutes) + job.flaws.missing**2
    for bucket, share in known.items():
        holds = abs(said[bucket] - share) <= least
        yield Check(f"ledger: {bucket}", f"{100.0 * share:.1f} %", f"{100.0 * said[bucket]:.1f} %", holds)


def _works(job: Job, node: int, at_s: Floats) -> npt.NDArray[np.bool_]:
    """Return whether some GPU of a node is described as working at each of the times, for a minute at least."""
    works = np.zeros((at_s.size, job.machine.gpus), dtype=np.bool_)
    for _, piece in pieces_of(job, node):
        for begin, end in piece.spans(job.minutes):
            works[within(at_s, begin, end), list(piece.gpus) or slice(None)] = piece.load.busy >= WORKS_PERCENT
    found = np.asarray(works.any(axis=1))
    changes = np.flatnonzero(np.diff(found, prepend=False, append=False))
    for begin, end in zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True):
        found[begin:end] = (end - begin) * job.interval_s >= WORK_S - job.interval_s
    return found


def true_shares(job: Job) -> dict[str, float]:
    """Return the share, 0 to 1, of the paid time of each bucket in OUTSIDE, and of all that is lost at work."""
    nodes = [_of_node(job, node) for node in range(1, job.nodes + 1)]
    return {bucket: sum(each[bucket] for each in nodes) / job.nodes for bucket in nodes[0]}


def unpaid_s(job: Job, node: int) -> float:
    """Return for how many seconds there was no instance: between samples, before a start-up.

    Where the GPUs work at once after a gap, samples were lost.
    """
    at_s = np.arange(0.0, 60.0 * job.minutes, job.interval_s)
    works = _works(job, node, at_s)
    gaps = [(60.0 * begin, 60.0 * end) for begin, end in job.flaws.gaps if begin > 0.0]
    return sum(end - begin for begin, end in gaps if not works[np.searchsorted(at_s, end)])


def _of_node(job: Job, node: int) -> dict[str, float]:
    counters, whole_s = node_counters(job, node), 60.0 * job.minutes
    total_s = whole_s - unpaid_s(job, node)
    at_s, busy = counters.at_s, counters.gpus.mean(axis=1) / 100.0
    usual = job.interval_s / (1.0 - job.flaws.missing)
    lengths = np.diff(at_s, append=whole_s)
    lengths = np.where(lengths > max(2.1 * usual, 5.0), usual, lengths)
    hang_s = min((60.0 * fault.onset_min for fault in job.faults if fault.kind in ENDLESS), default=whole_s)
    works = np.flatnonzero(_works(job, node, at_s) & (at_s < hang_s))
    begin_s, end_s = hang_s if hang_s < whole_s else 0.0, whole_s
    if works.size:
        begin_s, end_s = at_s[works[0]], at_s[works[-1]] + lengths[works[-1]]
    lost = lengths * (1.0 - busy)
    counted = at_s < hang_s
    found = {
        "compute": float((lengths * busy)[counted].sum()),
        "start_up": float(lost[counted & (at_s < begin_s)].sum()) + (at_s[0] if begin_s > at_s[0] else 0.0),
        "tail": float(lost[counted & (at_s >= end_s)].sum()),
        "hang": whole_s - hang_s,
        "at work": float(lost[counted & (at_s >= begin_s) & (at_s < end_s)].sum()),
    }
    return {bucket: seconds / total_s for bucket, seconds in found.items()} | {
        "no_samples": 1.0 - sum(found.values()) / total_s
    }
