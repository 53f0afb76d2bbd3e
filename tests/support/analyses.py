"""What ``trainguard analyze`` says about the one run of a place, by its own defaults, in this process."""

from trainguard.cli.commands.analyze.outcome import Analysis, chosen_rules, documented
from trainguard.local.runs import open_job


def analyzed(place: str) -> Analysis:
    given, plan = chosen_rules()
    return documented(open_job(place), given, plan, None)
