"""The words of OverallFrameworkMetrics."""

from trainguard.rules.framework_time import FrameworkKind
from trainguard.rules.units import show_duration, show_percent
from trainguard.rules.words import FactSheet, Words


def text(sheet: FactSheet) -> Words:
    """Say where the time of a node's processes went."""
    node = sheet.facts[0].node
    if sheet.kind == FrameworkKind.NO_EVENTS:
        return Words(f"no framework event of {node} was written.")
    if sheet.kind == FrameworkKind.NO_STEP:
        return Words(f"{node} wrote {int(sheet.number('events')):,} framework events and no training step.")
    loops = int(sheet.number("processes"))
    spent = f"{loops} processes of {node} spent, on average," if loops > 1 else f"1 process of {node} spent"
    steps, between = (show_percent(100.0 * sheet.number(f"time_{where}_steps")) for where in ("in", "between"))
    sentence = (
        f"{spent} {steps} of the {show_duration(sheet.number('loop_time'))} of training loop in steps and {between} "
        "between them"
    )
    for name, what in (("cpu_operator", "CPU"), ("gpu_operator", "GPU")):
        if sheet.get(name) is not None:
            share = show_percent(sheet.number(f"{name}_time"))
            sentence += f"; of the time of {what} operators {sheet.name(name)} took the most, {share}"
    return Words(f"{sentence}.")
