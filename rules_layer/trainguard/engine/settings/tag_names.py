"""Names of the tags that TrainGuard reads, beside those of settings."""

import re

NAMESPACE = "trainguard:"
STOP_TAG = "trainguard:stop-on-fire"
STOP_ALLOWED = "allowed"
FRAMEWORK_TAG = "trainguard:framework-metrics"
FRAMEWORK_EXPECTED = "expected"
SETTINGS_TAG = "trainguard:settings"
PROFILE_TAG = "trainguard:profile-path"
"""Where the profile lies of a job whose ProfilerConfig does not say so."""

JOB_TAG = "trainguard:job"
"""On a resource of AWS Batch or EC2: the job whose fires may stop it."""

EXEMPT_TAG = "trainguard:stop-exempt"
"""On such a resource: it is never stopped, whatever the tag's value."""

OWNER_TAGS = {"user": "trainguard:user", "team": "trainguard:team", "project": "trainguard:project"}


_TAKEN = re.compile(r"[\w .:/=+\-@]")
_ESCAPE = re.compile(r"(?:=[0-9A-F]{2})+", re.ASCII)


def to_tag(text: str) -> str:
    """Return a text escaped for a tag's value."""
    shown = _ESCAPE.sub(lambda found: found[0].replace("=", "=3D"), text)
    return "".join(sign if _TAKEN.fullmatch(sign) else _escaped(sign) for sign in shown)


def from_tag(value: str) -> str:
    """Return the text of a tag's value; what is no escape, or no UTF-8, stays as it is."""
    return _ESCAPE.sub(_unescaped, value)


def _escaped(sign: str) -> str:
    return "".join(f"={byte:02X}" for byte in sign.encode("utf-8", "surrogatepass"))


def _unescaped(found: re.Match[str]) -> str:
    try:
        return bytes.fromhex(found[0].replace("=", "")).decode()
    except UnicodeDecodeError:
        return found[0]
