"""The JSON schema of ``kernels.json``.

``python -m trainguard.cli.commands.kernels.schema > docs/schemas/kernels-1.json`` renews the published copy.
"""

import sys
from typing import Any

from trainguard.kernels.document import SCHEMA_VERSION, KernelProfiles
from trainguard.report.document import encode_schema, report_schema

IDENTITY = f"urn:trainguard:kernels:{SCHEMA_VERSION}"


def kernels_schema() -> dict[str, Any]:
    return {**report_schema(KernelProfiles, identity=IDENTITY), "title": "Kernel profiles of traces"}


if __name__ == "__main__":
    sys.stdout.buffer.write(encode_schema(kernels_schema()))
