"""A job's user, team and project by its tags: TrainGuard's own, the settings', or `DEFAULT_TAGS`, in any case."""

from collections.abc import Mapping

from trainguard.core.text import one_line
from trainguard.engine.settings.parsers import split_words
from trainguard.engine.settings.tag_names import OWNER_TAGS

OWNER_KINDS = tuple(OWNER_TAGS)

DEFAULT_TAGS: Mapping[str, tuple[str, ...]] = {
    "user": ("user", "username", "owner", "created-by", "sagemaker:user-profile-arn"),
    "team": ("team", "group", "department", "cost-center", "costcenter"),
    "project": ("project", "project-name", "sagemaker:project-name"),
}

MOST_TAGS = 20
LONGEST_OWNER = 128
_LONGEST_TAG = 128
_NONE = "none"
TAGS_EXPECTED = f"at most {MOST_TAGS} names of tags separated by spaces, or none"


def read_tag_names(text: str) -> tuple[str, ...] | None:
    """Read names of tags, each once; ``()`` for none."""
    words = tuple(dict.fromkeys(split_words(text)))
    if [word.lower() for word in words] == [_NONE]:
        return ()
    usable = 0 < len(words) <= MOST_TAGS and all(len(word) <= _LONGEST_TAG for word in words)
    return words if usable else None


def owners_of(tags: Mapping[str, str], names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return who owns a job, by kind of owner, as far as its tags say; `DEFAULT_TAGS` stand in for ``names``."""
    lowered: dict[str, str] = {}
    for key in sorted(tags):
        lowered.setdefault(key.lower(), tags[key])
    found = {}
    for kind, own in OWNER_TAGS.items():
        wanted = (own, *names.get(kind, DEFAULT_TAGS[kind]))
        values = (_shown(lowered.get(name.lower(), "")) for name in wanted)
        if (owner := next(filter(None, values), None)) is not None:
            found[kind] = owner
    return found


def _shown(value: str) -> str:
    """Return an owner's name on one line; of an ARN only what follows its last slash."""
    value = value.strip()
    if value.startswith("arn:"):
        value = value.rpartition("/")[2]
    return one_line(value, LONGEST_OWNER)
