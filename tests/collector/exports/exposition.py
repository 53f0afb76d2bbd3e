"""A strict reader of Prometheus' text format 0.0.4, as ``promtool check metrics`` is strict."""

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\n|\\")*)"(,|$)')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_META = re.compile(rf"# (HELP|TYPE|UNIT) ({_NAME}) (.*)")
_ESCAPES = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> Series:
    """Return the samples; every family has one HELP and TYPE before them, lies together, and repeats no series."""
    assert text.endswith("\n")
    found: Series = {}
    families: dict[str, dict[str, str]] = {}
    for line in text[:-1].split("\n"):
        if meta := _META.fullmatch(line):
            about = families.setdefault(meta[2], {})
            assert meta[1] not in about, line
            assert meta[2] == list(families)[-1], line
            about[meta[1]] = meta[3]
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample, line
        name = sample[1]
        assert name == list(families)[-1], line
        assert families[name]["HELP"], line
        assert families[name]["TYPE"] in ("gauge", "counter"), line
        assert (families[name]["TYPE"] == "counter") == name.endswith("_total"), line
        assert families[name].get("UNIT", "") in name, line
        key = name, frozenset(_labels(sample[2] or "").items())
        assert key not in found, line
        found[key] = float(sample[3])
    return found


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    while text:
        label = _LABEL.match(text)
        assert label, text
        assert label[1] not in found, text
        assert not label[1].startswith("__"), text
        found[label[1]] = re.sub(r'\\[\\n"]', lambda each: _ESCAPES[each[0]], label[2])
        text = text[label.end() :]
    return found
