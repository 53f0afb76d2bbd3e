"""What a rule needs of a run that has files of scalars alone: nothing there is recorded with a hook."""

from collections.abc import Mapping
from typing import NamedTuple

_SELECTS = (
    "It checks the scalars that tensor_regex selects: set it to a regular expression that is found in their names."
)
_BOTH = (
    "It checks losses of training and of evaluation at steps or epochs: log both, or say by ScalarNames_losses and "
    "ScalarNames_evaluation which names are theirs."
)
NEEDS: Mapping[str, str] = {
    "AllZero": _SELECTS,
    "TensorVariance": _SELECTS,
    "UnchangedTensor": _SELECTS,
    "ExplodingTensor": "It checks every scalar, or those that collection_names and tensor_regex select: log one.",
    "LossNotDecreasing": "It checks losses at steps num_steps apart: log more of them, or set num_steps.",
    "Overfit": _BOTH,
    "Overtraining": _BOTH,
    "StalledTrainingRule": "It checks when steps are saved: log scalars with TensorBoard, whose files have times.",
    "TrainingDiverged": "It checks losses: log one.",
    "NotLearning": "It checks losses, and scores beside them: log one.",
    "Plateau": "It checks losses of training: log one.",
    "LossSpike": "It checks the loss of training: log one.",
    "GradientNormDrift": "It checks the gradient norm beside the loss: log both, as grad_norm and loss.",
}
"""By rule. What is not named here checks tensors, which a hook has to record."""


class FoundScalars(NamedTuple):
    """Scalars that files hold: their names (``more`` says that there are others), and those taken for losses."""

    names: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    more: bool = False


def scalar_needs(rule: str, needs: str, found: FoundScalars) -> str:
    """Say what was found and what to do about it; ``needs`` are the words of a rule that no scalars serve.

    What an earlier version stored has no names yet.
    """
    on_scalars = NEEDS.get(rule)
    if not found.names:
        return needs if on_scalars is None else on_scalars
    held = f"The files of scalars hold {', '.join(found.names)}{' and others' if found.more else ''}"
    if on_scalars is None:
        return f"{held}, and no tensors. {needs}"
    if found.losses or rule in _WITHOUT_LOSSES:
        taken = f"; taken for losses: {', '.join(found.losses)}" if found.losses else ""
        return f"{held}{taken}. {on_scalars}"
    return (
        f"{held}; none of these names is taken for a loss. If one is the loss, set ScalarNames_losses to a regular "
        f"expression that is found in it, for example ScalarNames_losses={min(found.names, key=len)}."
    )


_WITHOUT_LOSSES = frozenset({"AllZero", "TensorVariance", "UnchangedTensor", "ExplodingTensor", "StalledTrainingRule"})
"""Rules to which it does not matter what a name means."""
