"""A profile to write and to read twice."""

from pathlib import Path

import pytest

from tests.support.profile_folder import ProfileFolder


@pytest.fixture
def profile(tmp_path: Path) -> ProfileFolder:
    """An empty profile."""
    return ProfileFolder(tmp_path)
