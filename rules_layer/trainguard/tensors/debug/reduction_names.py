"""Names under which reductions are saved: ``smdebug/reductions/[abs_]<reduction>/<tensor>``."""

import re
from typing import NamedTuple, cast, get_args

from trainguard.tensors.step_view import ReductionKind

KINDS: tuple[ReductionKind, ...] = get_args(ReductionKind)
_NAME = re.compile(rf"smdebug/reductions/(?P<abs>abs_)?(?P<kind>{'|'.join(KINDS)})/(?P<tensor>.+)", re.DOTALL)
_OUTPUT = re.compile(r":\d+")


class Reduction(NamedTuple):
    """Which reduction of which tensor; ``absolute`` says that it is one of the absolute values."""

    tensor: str
    kind: ReductionKind
    absolute: bool


def parse_reduction(name: str) -> Reduction | None:
    """Return what a saved reduction's name says; None for a tensor of its own.

    The hook strips ``:0`` from the tensor's name, but for TensorFlow: `bare_name` finds the two together.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return Reduction(match["tensor"], cast("ReductionKind", match["kind"]), match["abs"] is not None)


def bare_name(tensor: str) -> str:
    """Return a tensor's name as the hook puts it into the names of its reductions: without ``:0``."""
    return _OUTPUT.sub("", tensor)
