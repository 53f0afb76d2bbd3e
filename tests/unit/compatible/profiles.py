"""Small profiles, written line by line, and their replay."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from trainguard.managed.replay import Replayed, replay

# The first minute of every profile here.
FIRST_S = 1_700_000_040

FIRST_US = FIRST_S * 1_000_000
ORIGIN_US = FIRST_US - 1_000_000_000
STEP = "Step:ModeKeys.TRAIN"
Sample = tuple[str, str, float, float]


class Profile:
    """A profile's files by path; a source for ``replay``."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str) -> bytes:
        return self.files[name]

    def minute(self, number: int, samples: Iterable[Sample] = (), *, node: str = "algo-1") -> "Profile":
        """Add a system file of (dimension, device, seconds since the first minute, value)."""
        name = f"system/incremental/2023111422/{FIRST_S + 60 * number}.{node}.json"
        lines = [line(dimension, device, at, value, node=node) for dimension, device, at, value in samples]
        self.files[name] = "".join(f"{text}\n" for text in lines).encode()
        return self

    def minutes(self, count: int) -> "Profile":
        """Add empty system files where there are none, so that ``count`` minutes are analysed."""
        for number in range(count + 1):
            name = f"system/incremental/2023111422/{FIRST_S + 60 * number}.algo-1.json"
            self.files.setdefault(name, b"")
        return self

    def trace(
        self,
        end_s: float,
        events: Iterable[Mapping[str, Any]],
        *,
        process: str = "905-algo-1",
        kind: str = "pythontimeline",
    ) -> "Profile":
        """Add a framework file whose last event ends ``end_s`` seconds after the first minute."""
        end_us = FIRST_US + round(end_s * 1e6)
        self.files[f"framework/pevents/2023111422/{end_us}_{process}_{kind}.json"] = json.dumps(list(events)).encode()
        return self


def line(dimension: str, device: str | None, at: float, value: Any, *, node: str = "algo-1") -> str:
    """Write one system sample, ``at`` seconds after the first minute."""
    sample = {"Type": "x", "Name": device, "Dimension": dimension, "Value": value, "NodeId": node}
    return json.dumps(sample | {"Timestamp": FIRST_S + at})


def origin() -> dict[str, Any]:
    """Return the event that says what the file's times count from."""
    return {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": ORIGIN_US}}


def phase(number: int, name: str) -> dict[str, Any]:
    """Return the event that names a phase."""
    return {"name": "process_name", "ph": "M", "pid": number, "args": {"name": name}}


def ts(at: float) -> int:
    """Return the event time of ``at`` seconds after the first minute."""
    return FIRST_US - ORIGIN_US + round(at * 1e6)


def event(name: str, number: int, at: float, seconds: float, **arguments: Any) -> dict[str, Any]:
    """Return a complete event of a phase."""
    complete = {"name": name, "ph": "X", "pid": number, "ts": ts(at), "dur": round(seconds * 1e6)}
    return complete | ({"args": arguments} if arguments else {})


def report(profile: Profile, rule: str, **parameters: Any) -> dict[str, Any]:
    """Replay a profile and return one rule's report."""
    return replayed(profile, {rule: parameters}).reports[rule]


def replayed(profile: Profile, settings: Mapping[str, Mapping[str, Any]] | None = None) -> Replayed:
    """Replay a profile; what it reports can be written as JSON."""
    result = replay(profile.names(), profile.read, settings)
    json.dumps(result.reports)
    return result
