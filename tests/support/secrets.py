"""What credentials look like in text."""

import re
from collections.abc import Iterable, Mapping

PATTERNS: Mapping[str, re.Pattern[str]] = {
    "AWS access key": re.compile(r"(?<![A-Z0-9])(?:AKIA|ASIA|AROA|AIDA)[A-Z2-7]{16}(?![A-Z0-9])"),
    "AWS secret key": re.compile(
        r"(?i)aws_?(?:secret_?access_?key|session_?token)[\"']?\s*[:=]\s*[\"']?(?P<value>[A-Za-z0-9/+=]{40,})"
    ),
    "private key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    "GitHub token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})"),
    "Slack token": re.compile(
        r"\bxox[abeprs]-[A-Za-z0-9-]{20,}|hooks\.slack\.com/services/T[A-Z0-9]{8,}/B[A-Z0-9]{8,}/"
    ),
    "package registry token": re.compile(r"\b(?:npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{50,})"),
    "Hugging Face or OpenAI key": re.compile(r"\b(?:hf_[A-Za-z0-9]{34}|sk-(?:proj-)?[A-Za-z0-9_-]{40,})"),
    "Google key": re.compile(r"\bAIza[A-Za-z0-9_-]{35}"),
    "signed token": re.compile(r"\beyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
    "credentials in a URL": re.compile(r"\bhttps?://[^\s/:@\"'<>{}$]+:(?P<value>[^\s/:@\"'<>{}$]{6,})@"),
}


def secrets_in(text: str, allowed: Iterable[str] = ()) -> list[str]:
    """Return what in a text looks like a credential: its kind, and its first characters; ``allowed`` are none."""
    known = tuple(allowed)
    return [
        f"{kind}: {match[0][:12]}…"
        for kind, pattern in PATTERNS.items()
        for match in pattern.finditer(text)
        if not any(each in match[0] for each in known)
    ]
