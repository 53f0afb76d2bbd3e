"""The fleet's document as JSON, and its published schema.

``python -m trainguard.report.fleet_files > docs/schemas/fleet-1.json`` renews the published copy.
"""

import sys
from typing import Any

import msgspec

from trainguard.report.fleet_document import SCHEMA_VERSION, FleetReport
from trainguard.report.schema import encode_schema, report_schema

IDENTITY = f"urn:trainguard:fleet:{SCHEMA_VERSION}"


def encode_fleet(report: FleetReport) -> bytes:
    """Encode the fleet's document, indented."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def fleet_schema() -> dict[str, Any]:
    """Return the schema of ``fleet.json``."""
    return {**report_schema(FleetReport, identity=IDENTITY), "title": "Report of all training jobs of a deployment"}


if __name__ == "__main__":
    sys.stdout.buffer.write(encode_schema(fleet_schema()))
