"""A node's streams over a local profile: the deployed sessions, whose system metrics come parsed."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from trainguard.core.records import NodeRecord
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.framework_session import FrameworkSession
from trainguard.engine.profiler.listing import ProfileListing
from trainguard.engine.profiler.system_session import SystemSession
from trainguard.engine.streams.session import Applied, Parsed
from trainguard.engine.verdicts.verdict import Fire
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.system import Samples
from trainguard.local.prefetch import BodiesAhead, SamplesAhead, Unreadable
from trainguard.local.profile import NodeObjects, Profile

AnySession = SystemSession | FrameworkSession


class ObjectListener(Protocol):
    """Is shown each object that could be read, once, in the order in which it is applied."""

    def samples(self, node: str, samples: Samples) -> None:
        """Take one object of system metrics."""
        ...

    def events(self, node: str, events: FrameworkEvents) -> None:
        """Take one framework object."""
        ...


def open_session(
    record: NodeRecord,
    profile: Profile,
    plan: RulePlan,
    samples: SamplesAhead,
    bodies: BodiesAhead,
    tap: ObjectListener | None = None,
) -> AnySession:
    """Open a stream that has not begun."""
    node = record.key.node
    objects = NodeObjects(profile, node, bodies.read)
    listing = ProfileListing(objects=objects, bucket=profile.source.place, root=profile.root, node=node)
    if record.key.stream == "system":
        return _ParsedSystemSession(record, listing, plan, samples, tap)
    return (
        FrameworkSession(record, listing, plan) if tap is None else _TappedFrameworkSession(record, listing, plan, tap)
    )


class _ParsedSystemSession(SystemSession):
    def __init__(
        self,
        record: NodeRecord,
        listing: ProfileListing,
        plan: RulePlan,
        samples: SamplesAhead,
        tap: ObjectListener | None,
    ) -> None:
        super().__init__(record, listing, plan)
        self._samples = samples
        self._tap = tap

    def _use(
        self, key: str, read: Callable[[bytes], Parsed], fold: Callable[[Parsed], tuple[Counter[str], list[Fire]]]
    ) -> Applied:
        del read  # the samples come parsed
        outcome: Any = self._samples.take(key)

        def parsed(_: bytes) -> Any:
            if isinstance(outcome, Unreadable):
                raise outcome.error(key)
            return outcome

        return super()._use(key, parsed, fold)

    def _fold(self, samples: Samples) -> tuple[Counter[str], list[Fire]]:
        if self._tap is not None:
            self._tap.samples(self.record.key.node, samples)
        return super()._fold(samples)


class _TappedFrameworkSession(FrameworkSession):
    def __init__(self, record: NodeRecord, listing: ProfileListing, plan: RulePlan, tap: ObjectListener) -> None:
        super().__init__(record, listing, plan)
        self._tap = tap

    def _fold(self, end_us: int, events: FrameworkEvents) -> tuple[Counter[str], list[Fire]]:
        self._tap.events(self.record.key.node, events)
        return super()._fold(end_us, events)
