"""Checks of what launch helpers are given; a bool is no number here."""

from trainguard.core.errors import LaunchConfigError


def check_whole_number(where: str, field: str, value: object, least: int) -> None:
    """Raise LaunchConfigError unless ``value`` is an int of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise LaunchConfigError(where, field, value, f"a whole number from {least}")


def check_positive(where: str, field: str, value: object) -> None:
    """Raise LaunchConfigError unless ``value`` is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise LaunchConfigError(where, field, value, "a number above 0")


def check_flag(where: str, field: str, value: object) -> None:
    """Raise LaunchConfigError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise LaunchConfigError(where, field, value, "True or False")
