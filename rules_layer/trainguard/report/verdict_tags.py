"""A verdict as tags of a run, for the pages of other tools."""

from collections.abc import Mapping

from trainguard.plain_text import one_line
from trainguard.report.job_verdict_document import JobVerdict

PREFIX = "trainguard."
LONGEST_VALUE = 5_000
"""MLflow's limit of a tag's value."""


def verdict_tags(verdict: JobVerdict) -> Mapping[str, str]:
    """Return the tags by name; what is not known is an empty text, so that none of an earlier verdict stays."""
    lost = "" if verdict.lost is None else f"{verdict.lost:.2f}"
    share = "" if verdict.wasted_share is None else f"{verdict.wasted_share:.4f}"
    said = {
        "verdict": verdict.verdict.value,
        "why": verdict.why,
        "since": verdict.since,
        "certainty": verdict.certainty,
        "rules": " ".join(verdict.rules),
        "wasted_share": share,
        "lost": lost,
        "currency": verdict.currency if lost else "",
        "advice": verdict.advice,
        "job": verdict.job,
        "evaluated_through": verdict.evaluated_through,
        "generated_at": verdict.generated_at,
    }
    return {f"{PREFIX}{name}": one_line(str(value or ""), LONGEST_VALUE) for name, value in said.items()}
