"""Calls of the CUDA and HIP runtime and driver by one name, whatever version of the call was made."""

import re
from functools import lru_cache

_CALL = re.compile(r"(?:cu|cuda|hip)[A-Z]\w*")
_VERSION = re.compile(r"(?:_ptsz|_ptds)?(?:_v\d+)?(?:_ptsz|_ptds)?")


@lru_cache(maxsize=4_096)
def call_name(name: str) -> str:
    """Return a call's name without its version: ``cudaLaunchKernel`` for ``cudaLaunchKernel_v7000``."""
    place = name.find("_")
    return name[:place] if place > 0 and is_call(name) and _VERSION.fullmatch(name, place) else name


def is_call(name: str) -> bool:
    """Whether a name is that of a call."""
    return _CALL.fullmatch(name) is not None
