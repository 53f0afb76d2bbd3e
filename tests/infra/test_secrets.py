"""No credential is in the repository, and the scan that says so finds each kind."""

import subprocess
from pathlib import Path

import pytest

from infra.places import PROJECT_ROOT
from tests.support.secrets import PATTERNS, secrets_in

# In what AWS's own documents have, and in addresses that tests refuse.
ALLOWED = ("EXAMPLE", "user:password@", "user:secret@")

_SKIPPED = {".xz", ".gz", ".png", ".wandb", ".zip", ".db", ".svg"}
SAMPLES = {
    "AWS access key": "AKIA" + "Q3EGWXTMZ7PKLN2D",
    "AWS secret key": "aws_secret_access_key = " + "a1B2" * 10,
    "private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "GitHub token": "ghp_" + "a1B2" * 9,
    "Slack token": "xoxb-" + "1234567890-" * 3,
    "package registry token": "npm_" + "a1B2" * 9,
    "Hugging Face or OpenAI key": "hf_" + "a1B2" * 8 + "cd",
    "Google key": "AIza" + "a1B2_" * 7,
    "signed token": ".".join(("eyJ" + "a1B2" * 6, "eyJ" + "c3D4" * 6, "e5F6" * 6)),
    "credentials in a URL": "https://robot:" + "hunter22@host/",
}


def tracked() -> list[Path]:
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, check=True).stdout
    files = [PROJECT_ROOT / name for name in listed.decode().split("\0") if name]
    return [file for file in files if file.suffix not in _SKIPPED and file.is_file() and not file.is_symlink()]


def test_no_file_of_the_repository_holds_a_credential() -> None:
    files = tracked()
    assert len(files) > 1_000
    found = {
        file.relative_to(PROJECT_ROOT).as_posix(): secrets
        for file in files
        if (secrets := secrets_in(file.read_text("utf-8", errors="replace"), ALLOWED))
    }
    assert found == {}


@pytest.mark.parametrize("kind", PATTERNS)
def test_each_kind_of_credential_is_found_and_not_shown_whole(kind: str) -> None:
    text = f"before {SAMPLES[kind]} after"
    (found,) = secrets_in(text, ALLOWED)
    assert found.startswith(f"{kind}: ")
    assert SAMPLES[kind] not in found
    assert secrets_in(f"{SAMPLES[kind][:8]} only") == []
