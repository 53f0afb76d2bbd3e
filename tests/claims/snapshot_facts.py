"""What the rules on memory should find in a snapshot: its allocator's events, replayed."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

LEAST_GROWTH, FALLS, LEAST_STEPS, SURE_STEPS, SOON = 1_000_000, 0.1, 4, 8, 1_000
LEAST_FREE, FULL, LEAST_HELD, WARM_UP = 0.2, 0.9, 0.4, 2
NO_PLACE = "a place without a stack"
HOLDERS, EVIDENCE, PHASES = 10, 3, 3
SETUP, OPTIMIZER, BACKWARD, FORWARD = "setup", "optimizer", "backward", "forward"
KEPT = {SETUP: "parameters", OPTIMIZER: "optimizer_state", BACKWARD: "gradients", FORWARD: "activations"}


@dataclass
class Allocation:
    """Bytes at one place; ``born`` and ``died`` are numbers of events, -1 before the first, infinite at the end."""

    size: int
    frames: list[dict[str, Any]]
    born: int
    died: float = float("inf")

    @property
    def phase(self) -> str:
        files = [each["filename"] for each in self.frames]
        if any("/optim/" in each for each in files):
            return OPTIMIZER
        if not files:
            return BACKWARD
        return SETUP if any(each["name"] in {"convert", "_apply"} for each in self.frames) else FORWARD

    @property
    def stack(self) -> tuple[str, ...]:
        return tuple(f"{each['filename']}:{each['line']} {each['name']}" for each in self.frames)

    @property
    def place(self) -> str:
        own = [each for each in self.stack if "site-packages" not in each]
        return own[0] if own else NO_PLACE


class SnapshotFacts:
    """The memory of a snapshot's one GPU."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.segments = values["segments"]
        found = [events for events in values["device_traces"] if events]
        self.events = [each for each in found[0] if each["action"] != "free_completed"]
        self.allocations: list[Allocation] = []
        held: dict[int, Allocation] = {}
        for number, event in enumerate(self.events):
            if event["action"] == "alloc":
                made = held[event["addr"]] = Allocation(event["size"], event["frames"], number)
                self.allocations.append(made)
            elif event["action"] == "free_requested":
                held.pop(event["addr"]).died = number

    @cached_property
    def held(self) -> list[tuple[int, int]]:
        """What is allocated and reserved after each event."""
        ways = {"alloc": (1, 0), "free_requested": (-1, 0), "segment_alloc": (0, 1), "segment_free": (0, -1)}
        allocated = reserved = 0
        found = []
        for event in self.events:
            way = ways.get(event["action"], (0, 0))
            allocated += way[0] * event["size"]
            reserved += way[1] * event["size"]
            found.append((allocated, reserved))
        return found

    @property
    def failure(self) -> int | None:
        failed = [number for number, event in enumerate(self.events) if event["action"] == "oom"]
        return failed[-1] if failed else None

    @property
    def limit(self) -> int | None:
        return None if self.failure is None else self.held[self.failure][1] + self.events[self.failure]["device_free"]

    @property
    def moment(self) -> int:
        return max(range(len(self.held)), key=lambda at: self.held[at][0]) if self.failure is None else self.failure

    @cached_property
    def starts(self) -> list[int]:
        """The events in which a step begins, but the first: forward allocates behind the optimizer."""
        made = [each for each in self.allocations if each.phase != SETUP]
        before = OPTIMIZER if self._optimizes(made) > 1 else BACKWARD
        pairs = pairwise(made)
        return [later.born for each, later in pairs if each.phase == before and later.phase == FORWARD]

    @staticmethod
    def _optimizes(made: list[Allocation]) -> int:
        pairs = pairwise(made)
        return sum(each.phase == OPTIMIZER != later.phase for each, later in pairs)

    def kind(self, each: Allocation, moment: int) -> str:
        """Return for what an allocation is held at a moment."""
        # Behind a forward pass come backward, the optimizer and the next one, which needs nothing of it.
        is_old = self._phase_at(moment) - self._phase_at(each.born) >= PHASES
        if each.phase == FORWARD and each.died == float("inf") and is_old:
            return "unattributed"
        if each.died < float("inf") and self._phase_at(each.born) == self._phase_at(int(each.died)):
            return "workspace"
        return KEPT[each.phase]

    def _phase_at(self, moment: int) -> int:
        """Return how many times the phase has changed, by the allocations up to an event, and steps begun."""
        made = [each for each in self.allocations if each.born <= moment]
        return sum(each.phase != later.phase for each, later in pairwise(made))

    def holders(self, moment: int) -> list[tuple[int, str, str]]:
        """Return bytes, kind and place of who holds memory at a moment, the largest first."""
        found: Counter[tuple[str, tuple[str, ...], str]] = Counter()
        for each in self.allocations:
            if each.born <= moment < each.died:
                found[self.kind(each, moment), each.stack, each.place] += each.size
        return sorted(((size, kind, place) for (kind, _, place), size in found.items()), key=lambda each: -each[0])

    def largest_kinds(self, moment: int) -> set[str]:
        total: Counter[str] = Counter()
        for size, kind, _ in self.holders(moment):
            total[kind] += size
        most = max(total.values())
        return {kind.replace("_", " ") for kind, size in total.items() if size == most}

    @cached_property
    def at_steps(self) -> list[int]:
        return [self.held[start - 1][0] if start else 0 for start in self.starts][WARM_UP:]

    @property
    def growth(self) -> int:
        return (self.at_steps[-1] - self.at_steps[0]) // (len(self.at_steps) - 1)

    @property
    def grows(self) -> bool:
        values = self.at_steps
        if len(values) <= LEAST_STEPS:
            return False
        changes = [after - before for before, after in pairwise(values)]
        rises, falls = sum(max(each, 0) for each in changes), sum(max(-each, 0) for each in changes)
        goes_on = values[0] < values[len(values) // 2] < values[-1]
        return goes_on and self.growth >= LEAST_GROWTH and falls <= FALLS * rises

    @property
    def kept(self) -> tuple[int, str]:
        """Bytes and place of what most is kept of between the steps that count."""
        marks = self.starts[WARM_UP:]
        found: Counter[tuple[tuple[str, ...], str]] = Counter()
        for each in self.allocations:
            if marks[0] <= each.born < marks[-2] and each.died >= marks[-1]:
                found[each.stack, each.place] += each.size
        ((_, place), size) = max(found.items(), key=lambda each: each[1])
        return size, place

    def parts(self) -> list[str]:
        """Return what is free at the end, in words."""
        free = [block["size"] for each in self.segments for block in each["blocks"] if block["state"] == "inactive"]
        beside = sum(
            block["size"]
            for each in self.segments
            if any(block["state"] != "inactive" for block in each["blocks"])
            for block in each["blocks"]
            if block["state"] == "inactive"
        )
        reserved = sum(each["total_size"] for each in self.segments)
        return [
            f"{sum(free):,} of {reserved:,} reserved bytes free at the end",
            f"{max([0, *free]):,} bytes in the largest free block",
            f"{beside:,} free bytes beside blocks in use",
        ]

    def held_most(self, moment: int) -> list[str]:
        return [f"{size:,} bytes of {kind}, {place}" for size, kind, place in self.holders(moment)[:EVIDENCE]]


# Facts, whether they are sure, and evidence.
Said = tuple[dict[str, Any], bool, list[str]]


def findings(found: SnapshotFacts) -> dict[str, Said]:
    """Return what fires on a snapshot, by rule."""
    said: dict[str, Said] = {}
    failed = found.failure
    if failed is not None:
        said |= _of_failure(found, failed)
    if found.grows:
        size, place = found.kept
        facts: dict[str, Any] = {"growth_per_step": found.growth, "steps": len(found.at_steps) - 1, "place": place}
        if found.limit is not None:
            facts["steps_left"] = max(found.limit - found.at_steps[-1], 0) // found.growth
        sure = len(found.at_steps) > SURE_STEPS
        said["GpuMemoryGrows"] = (facts, sure, [f"{size:,} bytes kept, {place}"])
    return said


def _of_failure(found: SnapshotFacts, failed: int) -> dict[str, Said]:
    event, (allocated, reserved) = found.events[failed], found.held[failed]
    requested = event["size"]
    holders = found.holders(failed)
    facts = {"requested": requested, "allocated": allocated, "reserved": reserved}
    facts |= {"device_free": event["device_free"], "largest_kind": found.largest_kinds(failed)}
    facts["place"] = {place for size, _, place in holders if size == holders[0][0]} or {NO_PLACE}
    said: dict[str, Said] = {"GpuMemoryRanOut": (facts, True, found.held_most(failed))}
    peak = max(found.held, key=lambda each: each[0])
    if reserved - allocated >= requested:
        in_parts = {"unused": reserved - allocated, "requested": requested}
        said["GpuMemoryFragmented"] = (in_parts, True, found.parts())
    elif peak[1] >= FULL * (found.limit or 0) and peak[1] - peak[0] >= LEAST_FREE * peak[1]:
        shares = {"unused_share": (peak[1] - peak[0]) / peak[1], "reserved_share": peak[1] / (found.limit or 1)}
        said["GpuMemoryFragmented"] = (shares, True, found.parts())
    passing = [each for each in holders[:HOLDERS] if each[1] in {"activations", "workspace"}]
    if passing and passing[0][0] >= LEAST_HELD * allocated:
        size, kind, place = passing[0]
        most = {"held_share": size / allocated, "held": size, "held_kind": kind, "place": place}
        said["GpuMemoryHeld"] = (most, True, found.held_most(failed))
    return said


def says(found: SnapshotFacts) -> set[str]:
    """Return the rules that the snapshot judges."""
    known = {"GpuMemoryRanOut"}
    known |= {"GpuMemoryFragmented", "GpuMemoryHeld"} if found.limit is not None else set()
    return known | ({"GpuMemoryGrows"} if len(found.at_steps) > LEAST_STEPS else set())
