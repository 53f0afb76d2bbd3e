"""Calls of the driver, and copies and sets of memory, by one name: whatever the profiler and version call them."""

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
    return _CALL.fullmatch(name) is not None


_DIRECTIONS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "UVM HtoD",
    12: "UVM DtoH",
    13: "UVM DtoD",
}
"""By the number of the kind of a copy: CUPTI's, and behind them those that Nsight Systems adds."""


def direction(kind: int) -> str:
    return _DIRECTIONS.get(kind, "")


def memcpy_name(way: str, source: str, target: str) -> str:
    """Return the name of a copy: ``Memcpy HtoD (Pageable -> Device)``, without what is not known."""
    ends = f" ({source.title()} -> {target.title()})" if source and target else ""
    return f"Memcpy {way}{ends}" if way else f"Memcpy{ends}"


def memset_name(target: str) -> str:
    """Return the name of a set: ``Memset (Device)``."""
    return f"Memset ({target.title()})" if target else "Memset"
