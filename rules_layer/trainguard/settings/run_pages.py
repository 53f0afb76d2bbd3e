"""The pages of a job's run, from its tags and from what its container is given. Light to import."""

from collections.abc import Mapping

from trainguard.run_links import RUN_URL_TAG, run_links
from trainguard.settings.tag_text import from_tag


def run_pages(tags: Mapping[str, str], *others: Mapping[str, str]) -> dict[str, str]:
    """Return the links by tool; a sign that no tag takes may be escaped in the tag that names the owner's page."""
    own = {RUN_URL_TAG: from_tag(tags[RUN_URL_TAG])} if RUN_URL_TAG in tags else {}
    return run_links(({**tags, **own}, *others))
