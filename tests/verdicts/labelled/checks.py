"""One comparison of what was said with what is true."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a finding says about a fault: what, what is true, what was said, and whether they agree."""

    what: str
    true: str
    said: str
    holds: bool
