"""The version of this command line."""

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str | None:
    """Return the version that is installed; None when the package runs without having been installed."""
    try:
        return version("trainguard")
    except PackageNotFoundError:
        return None
