"""One trace or snapshot to its digests; one that cannot be read has one, too, which says why."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec
from msgspec.structs import replace

from trainguard.core.errors import KernelTraceError, ObjectMissingError, PortUnavailableError, error_text
from trainguard.core.ports import ByteStream, ProfileObjects
from trainguard.kernels.captures.digest import MOST_FULL_BYTES, BriefDigest, FullDigest, brief, stored
from trainguard.kernels.memory.entries import SnapshotProfile
from trainguard.kernels.profile import rank_profile, snapshot_profile
from trainguard.kernels.readers.reading import read_any, read_memory
from trainguard.kernels.timeline.build import timeline_of
from trainguard.stack.captures.plan import TraceItem

DIGEST_TYPE = "application/json"


def digest_trace(objects: ProfileObjects, item: TraceItem, limits: AbstractContextManager[None]) -> str:
    """Write a trace's or snapshot's digests, the brief one last; return why it could not be read, or nothing.

    ``limits`` raises KernelTraceError and MemoryError. Raises PortUnavailableError.
    """
    read, fault = _read(objects, item, limits)
    if isinstance(read, FullDigest):
        body = msgspec.json.encode(read)
        if len(body) > MOST_FULL_BYTES:
            body = msgspec.json.encode(replace(read, profile=brief(read.profile)))
        objects.put(item.bucket, item.digest("full"), body, DIGEST_TYPE)
        kept = BriefDigest(profile=brief(read.profile))
    else:
        kept = BriefDigest(snapshot=read, fault=fault)
    objects.put(item.bucket, item.digest("brief"), msgspec.json.encode(kept), DIGEST_TYPE)
    return fault


def _read(
    objects: ProfileObjects, item: TraceItem, limits: AbstractContextManager[None]
) -> tuple[FullDigest | SnapshotProfile | None, str]:
    try:
        with limits:
            return _digest(item, lambda: objects.open_stream(item.bucket, item.key)), ""
    except KernelTraceError as fault:
        return None, fault.reason
    except ObjectMissingError:
        return None, "it is gone"
    except MemoryError:
        return None, "it takes more memory than the function has: deploy with a larger kernel_digest_memory_mb"
    except PortUnavailableError:
        raise
    except Exception as fault:
        # What nobody thought of in one trace must not cost the capture its other ranks.
        return None, error_text(fault)


def _digest(item: TraceItem, open_stream: Callable[[], ByteStream]) -> FullDigest | SnapshotProfile:
    if item.is_snapshot:
        return snapshot_profile(read_memory(item.name, open_stream))
    trace = read_any(item.name, open_stream)
    return FullDigest(profile=rank_profile(trace), timeline=stored(timeline_of(trace, item.rows)))
