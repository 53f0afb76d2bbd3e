"""What Straggler reports about a few recorded steps of several ranks, as if these went on for a quarter of an hour."""

import re
from collections.abc import Mapping

from trainguard.formats.profile.columns import FrameworkEvents, read_framework_object
from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeFacts
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.straggler.pace import BLOCK_US, PaceState
from trainguard.rules.straggler.rule import Straggler, StragglerParameters

BLOCKS = 4
_ORIGIN = re.compile(rb'("start_time_since_epoch_in_micros": )(\d+)')


def straggler_of(files: Mapping[tuple[str, str], bytes]) -> RuleResult:
    """Judge timelines by node and process, whose steps come again in each of some blocks of five minutes."""
    began = min(int(found[2]) for body in files.values() if (found := _ORIGIN.search(body)))
    states: dict[str, PaceState] = {}
    shift = BLOCK_US - began % BLOCK_US
    for block in range(BLOCKS):
        for (node, process), body in files.items():
            states.setdefault(node, PaceState()).fold(_shifted(body, f"{node}-{process}", shift + block * BLOCK_US))
    start_s = (began + shift) / 1e6
    through = start_s + BLOCKS * BLOCK_US / 1e6
    nodes = {
        node: NodeFacts(node, framework=FrameworkView(node, through, closed=False), collected={"Straggler": state})
        for node, state in states.items()
    }
    view = JobView(start_s, through, None, True, True, closed=False, nodes=nodes)
    return Straggler().judge(view, StragglerParameters())


def _shifted(body: bytes, process: str, shift_us: int) -> FrameworkEvents:
    moved = _ORIGIN.sub(lambda found: found[1] + str(int(found[2]) + shift_us).encode(), body)
    return read_framework_object("key", moved, process=process, end_us=2**60)
