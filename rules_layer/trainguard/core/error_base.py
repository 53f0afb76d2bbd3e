"""The base of all errors."""


class TrainGuardError(Exception):
    """Base of everything that TrainGuard raises on purpose."""
