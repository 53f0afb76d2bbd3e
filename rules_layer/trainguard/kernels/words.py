"""Numbers of things, in words."""

from trainguard.core.units import counted


def are(number: int, one: str) -> str:
    return f"{counted(number, one)} {'is' if number == 1 else 'are'}"


def have(number: int, one: str) -> str:
    return f"{counted(number, one)} {'has' if number == 1 else 'have'}"


def explained(rule: str, ns_per_step: int, share: float) -> str:
    """Return in a sentence how much of a step a rule explains; empty where it explains nothing."""
    if not ns_per_step:
        return ""
    return f"{rule.rpartition('/')[2]}: {ns_per_step / 1e6:,.1f} ms of each step, {100.0 * share:.1f} % of the time."
