"""Names of the tags that TrainGuard reads, beside those of settings, and a job's owners by its tags."""

import re
from collections.abc import Mapping

from trainguard.core.text import one_line
from trainguard.engine.settings.parsers import split_words

NAMESPACE = "trainguard:"
STOP_TAG = "trainguard:stop-on-fire"
STOP_ALLOWED = "allowed"
FRAMEWORK_TAG = "trainguard:framework-metrics"
FRAMEWORK_EXPECTED = "expected"
SETTINGS_TAG = "trainguard:settings"
# Where the profile lies of a job whose ProfilerConfig does not say so.
PROFILE_TAG = "trainguard:profile-path"

# What agents may do to the job: ``brake``, ``stop`` or both.
AGENT_TAG = "trainguard:agent-actions"

# On a resource of AWS Batch or EC2: the job whose fires may stop it.
JOB_TAG = "trainguard:job"

# On such a resource: it is never stopped, whatever the tag's value.
EXEMPT_TAG = "trainguard:stop-exempt"

OWNER_TAGS = {"user": "trainguard:user", "team": "trainguard:team", "project": "trainguard:project"}


_TAKEN = re.compile(r"[\w .:/=+\-@]")
_ESCAPE = re.compile(r"(?:=[0-9A-F]{2})+", re.ASCII)


def to_tag(text: str) -> str:
    shown = _ESCAPE.sub(lambda found: found[0].replace("=", "=3D"), text)
    signs = (sign if _TAKEN.fullmatch(sign) else sign.encode("utf-8", "surrogatepass") for sign in shown)
    return "".join(sign if isinstance(sign, str) else "".join(f"={byte:02X}" for byte in sign) for sign in signs)


def from_tag(value: str) -> str:
    """Return the text of a tag's value; what is no escape, or no UTF-8, stays as it is."""

    def unescaped(found: re.Match[str]) -> str:
        try:
            return bytes.fromhex(found[0].replace("=", "")).decode()
        except UnicodeDecodeError:
            return found[0]

    return _ESCAPE.sub(unescaped, value)


OWNER_KINDS = tuple(OWNER_TAGS)

DEFAULT_TAGS: Mapping[str, tuple[str, ...]] = {
    "user": ("user", "username", "owner", "created-by", "sagemaker:user-profile-arn", "submitted-by"),
    "team": ("team", "group", "department", "cost-center", "costcenter", "scheduler-account"),
    "project": ("project", "project-name", "sagemaker:project-name"),
}

MOST_TAGS = 20
LONGEST_OWNER = 128
_LONGEST_TAG = 128
_NONE = "none"
TAGS_EXPECTED = f"at most {MOST_TAGS} names of tags separated by spaces, or none"


def read_tag_names(text: str) -> tuple[str, ...] | None:
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
