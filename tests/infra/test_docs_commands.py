"""Command lines in the documents: each can be typed, each make target and each setting of the context exists."""

import itertools
import re
import shlex
from pathlib import Path

import pytest

from infra.config import DeploymentConfig
from tests.infra.synthesis import ROOT
from tests.infra.test_docs_links import documents
from tests.unit.cli.test_command_line import parse, whole

_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?(trainguard|make|npx cdk) (.+)$", re.MULTILINE)
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def commands() -> list[tuple[Path, str, str]]:
    """Return every command line of ours, with its document and program."""
    found = []
    for document in documents():
        for block in _CONSOLE.findall((ROOT / document).read_text("utf-8")):
            found += [(document, program, words) for program, words in _COMMAND.findall(block)]
    return found


COMMANDS = commands()
TEXTS = [(ROOT / document).read_text("utf-8") for document in documents()]


def test_documents_have_commands_of_every_kind() -> None:
    assert {program for _, program, _ in COMMANDS} == {"trainguard", "make", "npx cdk"}


def test_settings_targets_and_commands_in_documents_exist() -> None:
    def named(pattern: str) -> set[str]:
        return {name for text in TEXTS for name in re.findall(pattern, text)}

    settings, targets, ours = named(r"-c (\w+)="), named(r"`make ([a-z]+)"), named(r"`trainguard ([a-z]+)\b")
    assert min(len(settings), len(targets), len(ours)) > 5
    assert settings - {"name"} <= set(DeploymentConfig.names())
    assert targets <= TARGETS
    assert ours <= set(whole().commands)


def test_each_command_in_a_document_can_be_typed(subtests: pytest.Subtests) -> None:
    for document, program, words in COMMANDS:
        with subtests.test(f"{document}: {program} {words}"):
            _read(program, shlex.split(words, comments=True))


def _read(program: str, typed: list[str]) -> None:
    if program == "make":
        assert {word for word in typed if "=" not in word} <= TARGETS
    elif program == "npx cdk":
        assert typed[0] in {"bootstrap", "deploy", "destroy", "diff", "synth"}
        settings = [value.partition("=")[0] for flag, value in itertools.pairwise(typed) if flag == "-c"]
        assert set(settings) <= set(DeploymentConfig.names())
    elif not {"--help", "--version", "--install-completion"} & set(typed):
        parse(whole(), "trainguard", typed)
