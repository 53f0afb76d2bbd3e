"""Comments, docstrings, messages and documents use the field's terms: none of the words that words.md replaces."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = Path(__file__).with_name("words.md")
IS_READ = re.compile(r".+\.py|docs/(?!style\.md).+\.md|(?:README|CONTRIBUTING|CHANGELOG)\.md")
IS_LEFT_OUT = re.compile(r"tests/data/.+|tests/infra/test_words\.py")

ROW = re.compile(r"^\| (?!not \|)(?P<words>[^|*]+?) \| (?P<instead>[^|]+?) \|$", re.MULTILINE)
CODE = re.compile(r"``[^`]*``|`[^`\n]*`")
F_STRING = re.compile(r"[rR]?[fF]")
EXPRESSION = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")
# A literal without a space: a key, a name or a value, and no sentence.
NAME = re.compile(r"[a-zA-Z]*(?P<quote>\"\"\"|'''|\"|')\S*(?P=quote)")

TEXTS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


# What to write instead, by each word of the table, in lower case.
BANNED = {
    word.lower(): row["instead"] for row in ROW.finditer(WORDS.read_text("utf-8")) for word in row["words"].split(", ")
}

PARTS = {word: frozenset(word.split()) for word in BANNED}
ENGLISH = re.compile(r"[a-z]+(?:'[a-z]+)?")


@cache
def pattern(words: frozenset[str]) -> re.Pattern[str]:
    """Return what finds some of the words, whole, also over the end of a line."""
    longest_first = sorted(words, key=len, reverse=True)
    phrases = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in longest_first)
    return re.compile(rf"(?<![\w-])(?:{phrases})(?![\w-])", re.IGNORECASE)


def candidates(source: str) -> frozenset[str]:
    """Return the banned words that a file may have: most have none, and sets find that fast."""
    lower = source.lower()
    held = set(ENGLISH.findall(lower))
    words = {word for word, parts in PARTS.items() if parts <= held}
    if any(len(PARTS[word]) > 1 for word in words):
        on_one_line = " ".join(lower.split())
        words = {word for word in words if word in on_one_line}
    return frozenset(words)


def blank(code: re.Pattern[str], text: str) -> str:
    """Return the text with its matches gone, and each of its lines where it was."""
    return code.sub(lambda match: "x" + "\n" * match[0].count("\n"), text)


def texts(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield what people read in a file, each piece with its first line."""
    if path.endswith(".md"):
        yield 1, source
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in TEXTS or (token.type == tokenize.STRING and NAME.fullmatch(token.string)):
            continue
        is_f_string = token.type == tokenize.STRING and F_STRING.match(token.string)
        yield token.start[0], blank(EXPRESSION, token.string) if is_f_string else token.string


def faults(path: str, source: str) -> Iterator[str]:
    """Yield each banned word of a file: where it stands, and what to write instead."""
    words = candidates(source)
    if not words or not (find := pattern(words)).search(source):
        return
    for first, piece in texts(path, source):
        text = blank(CODE, piece)
        for found in find.finditer(text):
            word = " ".join(found[0].split())
            line = first + text.count("\n", 0, found.start())
            yield f"{path}:{line}: {word!r}, write: {BANNED[word.lower()]}"


def tracked() -> list[str]:
    command = ["git", "ls-files", "*.py", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.splitlines() if IS_READ.fullmatch(path) and not IS_LEFT_OUT.fullmatch(path)]


def test_no_file_has_a_word_that_style_replaces() -> None:
    found = [fault for path in tracked() for fault in faults(path, (ROOT / path).read_text("utf-8"))]
    assert not found, "tests/infra/words.md has the words to use:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source", "where"),
    [
        ("a.py", "x = 1\n# People are told.\n", "a.py:2: 'told', write: notified of"),
        ("a.py", '"""One line.\n\nIt was told\n    apart.\n"""\n', "a.py:3: 'told apart', write: distinguished"),
        ("a.py", 'x = f"{told} is Grave {1}"\n', "a.py:1: 'Grave', write: severe"),
        ("docs/a.md", "# Title\n\nIt starts anew.\n", "docs/a.md:3: 'anew', write: again"),
    ],
    ids=["comment", "docstring", "message", "document"],
)
def test_a_word_is_found_with_its_line_and_what_to_write(path: str, source: str, where: str) -> None:
    (found,) = faults(path, source)
    assert found.startswith(where)


@pytest.mark.parametrize(
    "source",
    [
        "told = 1\n",
        'x = {"told": 1}\n',
        'x = f"{told} is fine"\n',
        '"""Return ``told`` and `anew`."""\n',
        '"""A tick of the axis, and calm data."""\n',
        '"""A retold and never-heard-of story."""\n',
    ],
    ids=["name", "key", "expression", "code", "another meaning", "part of a word"],
)
def test_names_keys_and_other_meanings_are_no_words(source: str) -> None:
    assert not list(faults("a.py", source))


LONGEST_TEST_NAME = 60
TEST = re.compile(r"def (test_\w+)\(")


def test_names_of_tests_have_at_most_60_characters() -> None:
    found = [
        f"{file}: {name}"
        for file in tracked()
        if file.startswith("tests/") and file.endswith(".py")
        for name in TEST.findall((ROOT / file).read_text("utf-8"))
        if len(name) > LONGEST_TEST_NAME
    ]
    assert not found


# Names that SageMaker's SDK gives stay.
_GIVEN = {"Rule"}


def test_public_classes_of_the_product_have_names_of_their_own() -> None:
    found: dict[str, list[str]] = {}
    for folder in ("rules_layer/trainguard", "infra", "lambdas"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: places for name, places in found.items() if len(places) > 1 and name not in _GIVEN} == {}
