"""How often a property whose examples take long is tried."""

from hypothesis import settings


def one_in(share: int) -> settings:
    """Return settings for one in ``share`` of the examples that the profile has of others."""
    profile = settings.default
    assert profile is not None
    return settings(max_examples=profile.max_examples // share)
