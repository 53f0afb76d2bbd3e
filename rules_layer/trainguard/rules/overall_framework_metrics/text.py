"""Kinds of judgements of OverallFrameworkMetrics, and their words."""

from trainguard.rules.rule_result import FactSheet, Words

KINDS = LOOP, NO_STEP, NO_EVENTS = "loop", "no_step", "no_events"


def text(sheet: FactSheet) -> Words:
    if sheet.kind == NO_EVENTS:
        return Words(sheet.say("no framework event of {node} was written."))
    if sheet.kind == NO_STEP:
        return Words(sheet.say("{node} wrote {events.value:,} framework events and no training step."))
    several = "{processes.value} processes of {node} spent, on average,"
    who = several if sheet.count("processes") > 1 else "1 process of {node} spent"
    said = " {time_in_steps} of the {loop_time} of training loop in steps and {time_between_steps} between them"
    sentence = sheet.say(who + said)
    for name, what in (("cpu_operator", "CPU"), ("gpu_operator", "GPU")):
        most = f"; of the time of {what} operators {{{name}}} took the most, {{{name}_time}}"
        sentence += sheet.say_if(name, most)
    return Words(f"{sentence}.")
