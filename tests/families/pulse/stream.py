"""A worker's pulse: objects in the order of steps to the state of rules."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from tests.families.pulse.keys import PULSE, PulseKey, match_key
from tests.families.pulse.rule import Beat
from trainguard.core.errors import TelemetryFormatError
from trainguard.core.records import StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.ordering.grid_order import GridOrder
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import NEWEST, Announced, Applied, Session, Stream, StreamState, item_name
from trainguard.engine.verdicts.verdict import Fire
from trainguard.state.codec import decode_state

_STEP = "step"
_INTERVAL_S = 10.0


class PulseState(StreamState):
    """What is stored of a worker's pulse."""

    skipped: list[int] = msgspec.field(default_factory=list)


class PulseStream(Stream[PulseState]):
    """Works on a PulseState."""

    interval_s = _INTERVAL_S

    @staticmethod
    def rules_of(plan: RulePlan) -> Sequence[Any]:
        return plan.rules_of(PULSE)

    def apply(self, beat: Beat) -> list[Fire]:
        self.state.watermark_s = max(beat.at, self.state.watermark_s or 0.0)
        return self._run(lambda rule, state, parameters: rule.observe(state, beat, parameters))

    def _judge(self, *, closed: bool) -> Any:
        return _judge


class PulseSession(Session[PulseStream]):
    """Applies a worker's objects in the order of steps."""

    def __init__(self, record: StreamRecord, source: ObjectSource, plan: RulePlan) -> None:
        super().__init__(record, source.get, PulseStream(record.key.node, state_of(record), plan))
        self._source = source
        self._order = GridOrder(
            cursor=record.cursors.get(_STEP),
            max_seen=record.cursors.get(NEWEST),
            pending={step: key for key, step in record.pending.items()},
            skipped=list(self.stream.state.skipped),
            spacing=1,
            lateness=3,
        )

    def announce(self, announced: Sequence[Announced]) -> None:
        for each in announced:
            self._order.announce(each.key, each.parsed.step)

    def apply(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        for _, key in self._order.ready(self._listed, drain=drain, modified_before=modified_before):
            yield self._use(key, partial(_read, key), self._fold)

    @property
    def has_changes(self) -> bool:
        return self._pending != self.record.pending

    def to_record(self, *, closed: bool) -> StreamRecord:
        order = self._order
        self.counters.update({"gaps": order.gaps, "late": order.late, "duplicates": order.duplicates})
        order.gaps = order.late = order.duplicates = 0
        self.stream.state.skipped = order.skipped
        return self._record(cursors={_STEP: order.cursor, NEWEST: order.max_seen}, pending=self._pending, closed=closed)

    @property
    def _pending(self) -> dict[str, int]:
        return {key: step for step, key in self._order.pending.items()}

    def _fold(self, beat: Beat) -> tuple[Counter[str], list[Fire]]:
        return Counter(), self.stream.apply(beat)

    def _listed(self, cursor: int | None) -> Iterator[tuple[str, int, float]]:
        source = self._source
        after = "" if cursor is None else f"{source.root.folder}{PULSE}/{cursor:09d}"
        for listed in source.objects.list(source.bucket, f"{source.root.folder}{PULSE}/", after):
            parsed = match_key(listed.key)
            if isinstance(parsed, PulseKey) and parsed.node == self.record.key.node:
                yield listed.key, parsed.step, listed.last_modified


def state_of(record: StreamRecord) -> PulseState:
    return decode_state(item_name(record), record.codec, record.state, PulseState) if record.state else PulseState()


def _judge(rule: Any, state: Any, parameters: Any) -> Any:
    return rule.judge(state, parameters)


def _read(key: str, body: bytes) -> Beat:
    try:
        return msgspec.json.decode(body, type=Beat)
    except msgspec.DecodeError as fault:
        raise TelemetryFormatError(key, f"{fault}, expected a beat") from fault
