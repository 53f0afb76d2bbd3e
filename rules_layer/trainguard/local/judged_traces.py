"""The traces of a place judged one at a time, as one document."""

import dataclasses
from collections.abc import Callable

from trainguard.core.errors import KernelTraceError, ObjectMissingError, PortUnavailableError, error_text
from trainguard.kernels.columns import Trace
from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.kernels.join import across_ranks
from trainguard.kernels.memory.snapshot import MemorySnapshot
from trainguard.kernels.profile import rank_profile, snapshot_profile
from trainguard.kernels.readers.builder import described
from trainguard.local.traces import FilesBelow


def unwatched(profile: RankProfile, trace: Trace) -> None:
    """Keep nothing of a trace."""


def profiles_of(
    place: FilesBelow, watch: Callable[[RankProfile, Trace], None] = unwatched, gpu: str = ""
) -> KernelProfiles:
    """Judge all traces of a place, one at a time, for ``watch``; raises KernelTraceError when none can be read."""
    ranks: list[RankProfile] = []
    snapshots = []
    unread: dict[str, str] = {}
    for name in place.names:
        try:
            trace = place.read(name)
            if isinstance(trace, MemorySnapshot):
                snapshots.append(snapshot_profile(trace))
                continue
            ranks.append(rank_profile(trace := _on_gpu(trace, gpu)))
            watch(ranks[-1], trace)
        except KernelTraceError as fault:
            unread[name] = fault.reason
        except (ObjectMissingError, PortUnavailableError, OSError) as fault:
            unread[name] = str(fault)
        except Exception as fault:
            # What nobody thought of in one file must not cost the others.
            unread[name] = error_text(fault)
    if not ranks and not snapshots:
        name, reason = next(iter(unread.items()))
        raise KernelTraceError(f"{place.place} ({name})" if len(place.names) > 1 else place.place, reason)
    for found in (ranks, snapshots):
        found.sort(key=lambda each: (each.rank is None, each.rank or 0, each.trace))
    source = place.place.encode("utf-8", "replace").decode()
    across = across_ranks(ranks)
    return KernelProfiles(source=source, ranks=ranks, unread=unread, across=across, snapshots=snapshots)


def _on_gpu(trace: Trace, gpu: str) -> Trace:
    """Return a trace with the GPU that its user names, where it names none itself."""
    return trace if not gpu or trace.gpus else dataclasses.replace(trace, gpus=[described(gpu, 0, 0, 0, 0)])
