"""One trace to its digests; a trace that cannot be read has one, too, which says why."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec
from msgspec.structs import replace

from trainguard.errors import KernelTraceError, ObjectMissingError
from trainguard.kernels.captures.brief import brief
from trainguard.kernels.captures.digest import MOST_FULL_BYTES, BriefDigest, FullDigest
from trainguard.kernels.captures.timeline_form import stored
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.reading import read_any
from trainguard.kernels.timeline.build import timeline_of
from trainguard.ports import ProfileObjects
from trainguard.report.captures.plan import TraceItem

DIGEST_TYPE = "application/json"


class DigestedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a trace; ``fault`` says why it could not be read."""

    key: str
    fault: str = ""


class TraceDigester:
    """Digests traces.

    Parameters
    ----------
    objects : ProfileObjects
    limits : callable
        Returns a context in which a trace is read and judged: it raises KernelTraceError when time runs out, and
        MemoryError before memory does.
    """

    def __init__(self, *, objects: ProfileObjects, limits: Callable[[], AbstractContextManager[None]]) -> None:
        self._objects = objects
        self._limits = limits

    def digest(self, item: TraceItem) -> DigestedTrace:
        """Read a trace and write its digests, the brief one last: who finds it finds the other.

        Raises
        ------
        PortUnavailableError
            When S3 did not answer.
        """
        full, fault = self._read(item)
        place = item.place
        if full is not None:
            self._put(item, place.full, _encoded(full))
        kept = BriefDigest(profile=None if full is None else brief(full.profile), fault=fault)
        self._put(item, place.brief, msgspec.json.encode(kept))
        return DigestedTrace(key=item.key, fault=fault)

    def _read(self, item: TraceItem) -> tuple[FullDigest | None, str]:
        """Return the digest of a trace, or why there is none."""
        try:
            with self._limits():
                trace = read_any(item.name, lambda: self._objects.open_stream(item.bucket, item.key))
                digest = FullDigest(profile=rank_profile(trace), timeline=stored(timeline_of(trace, item.rows)))
        except KernelTraceError as fault:
            return None, fault.reason
        except ObjectMissingError:
            return None, "it is gone"
        except MemoryError:
            return None, "it takes more memory than the function has: deploy with a larger kernel_digest_memory_mb"
        return digest, ""

    def _put(self, item: TraceItem, key: str, body: bytes) -> None:
        self._objects.put(item.bucket, key, body, DIGEST_TYPE)


def _encoded(digest: FullDigest) -> bytes:
    body = msgspec.json.encode(digest)
    return body if len(body) <= MOST_FULL_BYTES else msgspec.json.encode(replace(digest, profile=brief(digest.profile)))
