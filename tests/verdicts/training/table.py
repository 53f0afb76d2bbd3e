"""The figures of training health as text."""

from collections.abc import Iterator

from tests.verdicts.training.real_losses import LABELS
from tests.verdicts.training.scoring import FORMS, SEEDS, figures, real, verdicts


def table() -> str:
    """Return what is named of broken programs, what is said about repaired ones, and what of real runs."""
    return "\n".join([*_programs(), "", *_real()]) + "\n"


def _programs() -> Iterator[str]:
    yield f"Training health: programs that are broken or repaired, {len(SEEDS)} runs each"
    for form in FORMS:
        found = figures(form)
        yield (
            f"  {form:22} broken, named: {len(found.named):2} of {len(found.broken)}   "
            f"repaired, with a finding in any run: {len(found.false)} of {len(found.repaired)}"
        )
    said = {verdict.program: verdict.reasons for verdict in verdicts(FORMS[0]) if verdict.is_broken and verdict.reasons}
    for program, runs in figures(FORMS[0]).broken.items():
        rule, reason = next(iter(said.get(program, {"": ""}).items()))
        yield f"    {runs} of {len(SEEDS)}  {program:30} {rule:17} {reason}".rstrip()


def _real() -> Iterator[str]:
    yield "Training health: losses of real runs"
    for run, reasons in real():
        yield f"  {run}  {LABELS[run].kind:8} {'; '.join(reasons.values()) or 'no finding'}"
