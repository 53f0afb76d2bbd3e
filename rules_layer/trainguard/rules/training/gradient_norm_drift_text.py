"""The words of GradientNormDrift."""

from enum import StrEnum

from trainguard.rules.training.loss_facts import moved
from trainguard.rules.training.step_text import step_words
from trainguard.rules.words import FactSheet, Words

NEEDS = (
    "It checks norms of gradients beside the loss: log the gradient norm as a scalar, or record the collections "
    "gradients (the reduction l2 is enough) and losses."
)
BOUND = ("value", "of norms beyond the first 512, or beyond names of 40,000 characters")


class DriftKind(StrEnum):
    """The outcomes of GradientNormDrift."""

    FINE = "fine"
    LEARNS = "drifts while the loss falls"
    GROWS = "grows"
    SHRINKS = "shrinks"


def text(sheet: FactSheet) -> Words:
    """Return the words of a judgement."""
    return step_words(sheet, _words, rule="GradientNormDrift", needs=NEEDS, bound=BOUND)


def _words(sheet: FactSheet) -> Words:
    norm = sheet["norm_newest"]
    verb = "was" if sheet.past else "is"
    reason = (
        f"Step {sheet['step'].value}: {norm.series} {verb} about {float(norm.value):.3g} and was "
        f"{sheet.number('norm_first'):.3g} at the start, {sheet.number('distance'):.3g} decades apart"
    )
    since, several = sheet.get("drifts_since_step"), sheet.get("norms_drifted")
    if since is not None:
        reason += f", too far since step {since.value}"
        reason += "" if several is None else f", the first of {several.value} that drifted"
    change = sheet.number("change")
    reason += (
        f"; the loss {moved(change)}, from about {sheet.number('loss_first'):.4g} to {sheet.number('loss_newest'):.4g}."
    )
    if sheet.kind not in (DriftKind.GROWS, DriftKind.SHRINKS):
        return Words(reason)
    if sheet.kind == DriftKind.GROWS:
        cure = "Gradients that grow need clipping, a lower learning rate or normalisation."
        clause = "gradients grew by orders of magnitude"
    else:
        cure = (
            "Gradients that vanish need another activation or initialisation, shortcuts, or a learning rate that did "
            "not kill the units."
        )
        clause = "gradients shrank by orders of magnitude"
    return Words(reason, f"Look at {norm.series} first. {cure}", clause)
