"""What Straggler reports about a few recorded steps of several ranks, as if these lasted a quarter of an hour."""

import re
from collections.abc import Mapping

from trainguard.formats.profile.columns import FrameworkEvents, read_framework_object
from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeFacts
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.straggler.pace import BLOCK_US, PaceState
from trainguard.rules.straggler.rule import Straggler, StragglerParameters

BLOCKS = 4
_STEP, _TIMED = b'"name":"Step:ModeKeys', b'"ph":"X"'
_ORIGIN = re.compile(rb'("start_time_since_epoch_in_micros": )(\d+)')


def straggler_of(files: Mapping[tuple[str, str], bytes], parts: int = 1) -> RuleResult:
    """Judge timelines by node and process, cut into parts, one for each block of five minutes, and the last again.

    In one part all steps come again: what they have by chance lasts, too.
    """
    began = min(int(found[2]) for body in files.values() if (found := _ORIGIN.search(body)))
    states: dict[str, PaceState] = {}
    shift = BLOCK_US - began % BLOCK_US
    for block in range(BLOCKS):
        for (node, process), whole in files.items():
            body = _cut(whole, parts)[min(block, parts - 1)]
            states.setdefault(node, PaceState()).fold(_shifted(body, f"{node}-{process}", shift + block * BLOCK_US))
    start_s = (began + shift) / 1e6
    through = start_s + BLOCKS * BLOCK_US / 1e6
    nodes = {
        node: NodeFacts(node, framework=FrameworkView(node, through, closed=False), collected={"Straggler": state})
        for node, state in states.items()
    }
    view = JobView(start_s, through, None, True, True, closed=False, nodes=nodes)
    return Straggler().judge(view, StragglerParameters())


def _cut(body: bytes, parts: int) -> list[bytes]:
    """Return parts with equally many steps; the lines of a step come before its own."""
    lines = body.splitlines(keepends=True)
    steps, seen = sum(_STEP in line for line in lines), 0
    found: list[list[bytes]] = [[] for _ in range(parts)]
    for line in lines:
        for part in found if _TIMED not in line else found[min(seen * parts // max(steps, 1), parts - 1) :][:1]:
            part.append(line)
        seen += _STEP in line
    return [b"".join(part) for part in found]


def _shifted(body: bytes, process: str, shift_us: int) -> FrameworkEvents:
    moved = _ORIGIN.sub(lambda found: found[1] + str(int(found[2]) + shift_us).encode(), body)
    return read_framework_object("key", moved, process=process, end_us=2**60)
