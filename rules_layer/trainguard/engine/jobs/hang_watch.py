"""Finds what the ranks of a job that stands still leave behind; a report's execution reads it, however much it is."""

from collections.abc import Sequence
from dataclasses import replace

from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import Services
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.outbox import name_of_execution
from trainguard.engine.streams.job_streams import JobState
from trainguard.engine.streams.session import state_of
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.hangs.files import HangFile, kept_hang, listed_files, version_of
from trainguard.rules.hung_job.rule import HungJob
from trainguard.rules.hung_job.text import HungKind
from trainguard.rules.rule_inputs import KnownHang
from trainguard.state.codec import CODEC, encode_state

HUNG_JOB = HungJob.spec.name
# Kinds of a job that may be about to hang: its ranks may have left files already.
STANDING = frozenset({HungKind.STANDS_STILL, HungKind.PAUSES, HungKind.NEWEST_SAMPLE})

# Files that came later than so long ago wait for the next run: the others of the same ranks come with them.
SETTLED_S = 20.0

# Executions of a job that read its files; each is for another set of them.
MOST_ASKED = 24


def known_hang_of(
    job: JobRecord, verdict: RuleOutcome | None, state: JobState, services: Services, *, now: float
) -> KnownHang | None:
    """Return what is known of the files of a job that stands still, or has ended; asks for what is not known yet.

    ``now`` is in epoch seconds. Files that cannot be listed are looked for in the next run, which is counted.
    """
    stands = verdict is not None and (verdict.history.is_open or verdict.result.kind in STANDING)
    if not (stands or job.closing):
        return state.hang
    try:
        files = listed_files(services.objects, job.bucket, job.root)
        version = version_of(files)
        if not files or (state.hang is not None and state.hang.version == version):
            return state.hang
        kept = kept_hang(services.objects, job.bucket, job.root)
    except PortUnavailableError as fault:
        services.journal.count("port_failures", job=job.job, reason=str(fault))
        return state.hang
    if kept is None or kept.version != version:
        _ask(job, files, version, state, services, now=now)
    return state.hang if kept is None else kept


def with_hang(job: JobRecord, records: Sequence[StreamRecord], hang: KnownHang) -> list[StreamRecord]:
    """Return a job's items with what is known of its dumps; raises StateCodecError when its own cannot be decoded."""
    own = next((each for each in records if each.key.is_own), StreamRecord(StreamKey.own(job.job)))
    state = state_of(own, JobState)
    state.hang = hang
    others = [each for each in records if not each.key.is_own]
    return [*others, replace(own, state=encode_state(state), codec=CODEC)]


def _ask(
    job: JobRecord, files: list[HangFile], version: str, state: JobState, services: Services, *, now: float
) -> None:
    """Have the files read once for each set of them: an execution of a name starts once."""
    is_settled = max(each.modified_at for each in files) <= now - SETTLED_S
    if version not in state.hang_asked:
        if not is_settled or len(state.hang_asked) >= MOST_ASKED:
            return
        state.hang_asked.append(version)
    services.reports.start(name_of_execution(f"hang-{version}-{job.job}"), {"kind": "hang", "job": job.job})
