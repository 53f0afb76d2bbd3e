"""The JSON schema of ``report.json``, made from the document's types.

``python -m trainguard.report.schema > docs/schemas/report-2.json`` renews the published copy.
"""

import re
import sys
from typing import Any

import msgspec

from trainguard.core.finding import Fact, Progress
from trainguard.report.document import SCHEMA_VERSION, Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"
IDENTITY = f"urn:trainguard:report:{SCHEMA_VERSION}"
OMITTING = frozenset(each.__name__ for each in (Fact, Progress) if each.__struct_config__.omit_defaults)

_REFERENCE = "#/$defs/{name}"
_FIELDS = re.compile(
    r"^    (?P<names>\w+(?:, \w+)*)(?: : .*\n        |: )(?P<text>.*\n(?:        .*\n?)*)", re.MULTILINE
)
"""A field of a docstring: ``name: text``, or ``name : type`` with the text on the next line."""


def report_schema(document: type[msgspec.Struct] = Report, *, identity: str = IDENTITY) -> dict[str, Any]:
    """Return the schema: every field is there, but for those of `OMITTING` that are as usual, and no other is."""
    (reference,), types = msgspec.json.schema_components([document], ref_template=_REFERENCE)
    for name, described in types.items():
        if "properties" in described:
            if name not in OMITTING:
                described["required"] = list(described["properties"])
            described["additionalProperties"] = False
            _describe_fields(described)
    return {
        "$schema": DIALECT,
        "$id": identity,
        "title": "Report of a training job",
        **reference,
        "$defs": dict(sorted(types.items())),
    }


def encode_schema(schema: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def _describe_fields(described: dict[str, Any]) -> None:
    text, properties = f"{described.get('description', '')}\n", described["properties"]
    found = [match for match in _FIELDS.finditer(text) if {*match["names"].split(", ")} & properties.keys()]
    summary, _, _ = text[: found[0].start() if found else None].partition("Attributes\n")
    for match in found:
        for name in match["names"].split(", "):
            if name in properties:
                properties[name]["description"] = " ".join(match["text"].split())
    described["description"] = " ".join(summary.split())


if __name__ == "__main__":
    sys.stdout.buffer.write(encode_schema(report_schema()))
