"""A node's streams over a local profile: the deployed sessions, whose system metrics come parsed."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from trainguard.engine.framework_session import FrameworkSession
from trainguard.engine.listing import ProfileListing
from trainguard.engine.plan import RulePlan
from trainguard.engine.session import Applied, Parsed
from trainguard.engine.slots import Fire
from trainguard.engine.system_session import SystemSession
from trainguard.local.ahead import BodiesAhead, SamplesAhead, Unreadable
from trainguard.local.profile import NodeObjects, Profile
from trainguard.records import NodeRecord

AnySession = SystemSession | FrameworkSession


def open_session(
    record: NodeRecord, profile: Profile, plan: RulePlan, samples: SamplesAhead, bodies: BodiesAhead
) -> AnySession:
    """Open a stream that has not begun."""
    node = record.key.node
    objects = NodeObjects(profile, node, bodies.read)
    listing = ProfileListing(objects=objects, bucket=profile.source.place, root=profile.root, node=node)
    if record.key.stream == "system":
        return _ParsedSystemSession(record, listing, plan, samples)
    return FrameworkSession(record, listing, plan)


class _ParsedSystemSession(SystemSession):
    def __init__(self, record: NodeRecord, listing: ProfileListing, plan: RulePlan, samples: SamplesAhead) -> None:
        super().__init__(record, listing, plan)
        self._samples = samples

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
