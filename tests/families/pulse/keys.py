"""Where workers of a job write their pulse: ``<job>/pulse/<step>_<worker>.json``."""

import re
from dataclasses import dataclass

from trainguard.core.layout import JOB_ROOT, EndKey, ProfileRoot, root_of

PULSE = "pulse"
_OBJECT = re.compile(rf"{JOB_ROOT}/pulse/(?P<step>\d{{9}})_(?P<worker>worker-\d{{1,5}})\.json")
_END = re.compile(rf"{JOB_ROOT}/pulse/end")


@dataclass(frozen=True, slots=True)
class PulseKey:
    """The pulse of one worker at one step."""

    root: ProfileRoot
    node: str
    step: int
    stream: str = PULSE
    named_at: float | None = None


def match_key(key: str) -> PulseKey | EndKey | None:
    if match := _OBJECT.fullmatch(key):
        return PulseKey(root_of(match), match["worker"], int(match["step"]))
    if match := _END.fullmatch(key):
        return EndKey(root_of(match), PULSE)
    return None


def pulse_key(root: ProfileRoot, worker: str, step: int) -> str:
    return f"{root.folder}{PULSE}/{step:09d}_{worker}.json"
