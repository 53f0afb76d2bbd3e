"""What does not hold of what the product says."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Untrue:
    """A claim that does not hold: where it was made, what it is, and why it is not so."""

    where: str
    claim: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.claim}: {self.why}"


# Why a fact is untrue that no checker knows.
UNCHECKED = "nothing recomputes it"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A claim of a sentence that nothing here can check."""

    where: str
    name: str

    def __str__(self) -> str:
        return f"{self.where}: nothing checks {self.name}"


Claim = Untrue | Unknown
