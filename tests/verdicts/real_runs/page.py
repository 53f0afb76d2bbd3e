"""The table of README.md beside it: a person's label of each run beside the rules that fire on it."""

from collections.abc import Sequence
from pathlib import Path

from tests.verdicts.real_runs.recording import origins
from tests.verdicts.real_runs.scoring import Score, Totals, totals

PAGE = Path(__file__).with_name("README.md")
BEGIN = "<!-- written by: python -m tests.verdicts.real_runs --write -->"
END = "<!-- end of what is written -->"

_HEAD = """\
| run | minutes | GPU time unused | outcome | alert | rules that fire | rules with too little data |
|---|---|---|---|---|---|---|"""


def counted(sums: Totals) -> list[str]:
    """Return the counts, one sentence each."""
    jobs = f"{sums.jobs_named} of {sums.jobs} jobs"
    return [
        f"{sums.wasted_named} of {sums.wasted} wasted runs of 25 minutes or more ({jobs}) are named.",
        f"{sums.healthy_fired} of {sums.healthy} healthy runs have a finding.",
        f"{sums.unwanted} runs have a finding where an engineer wants none.",
        f"{sums.false} false statements are made.",
    ]


def said_in_short(score: Score) -> str:
    """Return the finding that stands first, the names of the others, and what is false."""
    said = score.said
    if said.findings:
        first, *others = said.findings
        rest = f" Also {', '.join(finding.rule for finding in others)}." if others else ""
        text = f"**{first.rule}**: {first.text}{rest}"
    elif said.short_of_data:
        text = f"No finding; too little data for {len(said.short_of_data)} rules."
    else:
        text = f"No finding; {said.level}."
    return " ".join([text, *(f"**False:** {sentence}" for sentence in score.false)])


def table(scores: Sequence[Score]) -> str:
    """Return the counts and the table in Markdown."""
    rows = [_row(score) for score in scores]
    return "\n".join([*(f"* {sentence}" for sentence in counted(totals(scores))), "", _HEAD, *rows])


def _row(score: Score) -> str:
    label = score.label
    minutes = origins()[label.run].seconds / 60.0
    cells = [
        label.run,
        f"{minutes:.1f}",
        f"{label.unused_percent:.0f} %",
        label.outcome.replace("_", " "),
        label.fire,
        _fired(score),
        f"{len(score.said.short_of_data)}",
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _fired(score: Score) -> str:
    """Return the rules that fire, the first one in bold, and what is false."""
    first, *others = score.said.fired or ("none",)
    named = ", ".join([f"**{first}**" if score.said.fired else first, *others])
    return " ".join([named, *(f"**False:** {sentence}" for sentence in score.false)])


def with_table(page: str, scores: Sequence[Score]) -> str:
    """Return the page with a new table between the marks; raises ValueError when a mark is missing."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no line {BEGIN if not begin else END!r}")
    return f"{head}{BEGIN}\n\n{table(scores)}\n\n{END}{tail}"
