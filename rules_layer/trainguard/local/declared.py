"""A job's length and batch, as its own files have them."""

import json
from contextlib import suppress
from dataclasses import dataclass

from trainguard.core.errors import TrainGuardError
from trainguard.local.profile import TrainingFiles

_STATE = "trainer_state.json"
_STATE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A job's length and batch as its own files have them; None where they do not."""

    total_steps: int | None = None
    batch_per_gpu: int | None = None


def declared(files: TrainingFiles | None) -> Declared:
    """Return what the newest ``trainer_state.json`` of a run says; nothing of one that cannot be read."""
    found = Declared()
    if files is None:
        return found
    for key in files.scalars:
        if _STATE not in key:
            continue
        with suppress(TrainGuardError, OSError, ValueError, RecursionError):
            state = json.loads(files.objects.get(files.bucket, key, _STATE_BYTES))
            known = Declared(
                total_steps=_count(state.get("max_steps")), batch_per_gpu=_count(state.get("train_batch_size"))
            )
            found = known if (known.total_steps or 0) >= (found.total_steps or 0) else found
    return found


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
