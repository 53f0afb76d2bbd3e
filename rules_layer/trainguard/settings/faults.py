"""What is wrong with a setting, in the words that a person needs: who gave it, what it is, what would be right."""

import msgspec

MOST_FAULTS = 40
"""This many faults of a job are listed; the rest are counted."""

_LONGEST_NAME, _LONGEST_VALUE = 128, 120


class SettingFault(msgspec.Struct, frozen=True):
    """A setting that cannot be used as given.

    ``setting`` is empty where a source is unusable as a whole. ``stops`` says that it cannot be known what may stop the
    job, so that nothing may.
    """

    source: str
    setting: str
    value: str
    expected: str
    stops: bool = False

    def __str__(self) -> str:
        value = repr(_shortened(self.value, _LONGEST_VALUE))
        told = f"{_name(self.setting)} is {value}" if self.setting else f"it is {value}"
        return f"{_name(self.source)}: {told}, expected {self.expected}"


NO_PLACE = SettingFault(
    "ProfilerConfig",
    "S3OutputPath",
    "not given",
    "where the job's profile lies, here or in the tag trainguard:profile-path: without it anybody's objects count, "
    "and nothing may stop the job",
)
"""What is wrong with the permission to stop a job whose configuration names no place for its profile."""


def fault_sentences(faults: tuple[SettingFault, ...]) -> tuple[str, ...]:
    """Return each fault as a sentence; of more than ``MOST_FAULTS`` the rest as their number."""
    told = [str(fault) for fault in faults[:MOST_FAULTS]]
    rest = len(faults) - len(told)
    return (*told, f"and {rest} more") if rest else tuple(told)


def _name(name: str) -> str:
    name = _shortened(name, _LONGEST_NAME)
    return name if name.isprintable() else repr(name)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
