"""Synthesises several variants of the application in one process, whose start takes longer than a synthesis.

``python -m tests.infra.variants FOLDER`` leaves for each variant the folder ``FOLDER/<name>`` with its cloud assembly,
and what stopped it, if anything did, in ``FOLDER/<name>.error``. All share an empty layer, which saves seconds more.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from infra import app, stack
from infra.constructs import layer, nag

PERSON = {
    "profile_bucket": "our-profiles",
    "retain_data": "false",
    "alert_emails": "ml@example.com,oncall@example.com",
    "operations_emails": ["platform@example.com"],
    "stop_switch": "dry-run",
}
WARNING = ("Evaluation/Tick/Role/Resource", "Serverless::Serverless-LambdaStarPermissions")


def main(folder: Path) -> None:
    """Synthesise every variant."""
    empty = folder / "empty-layer"
    (empty / "python").mkdir(parents=True)
    with mock.patch.object(layer, "layer_folder", return_value=empty):
        _synthesise(folder / "emulator", {"emulator": "true"})
        _synthesise(folder / "person", PERSON)
        others = tuple(finding for finding in nag.ACCEPTED if (finding.path, finding.rule) != WARNING)
        with mock.patch.object(nag, "ACCEPTED", others):
            _synthesise(folder / "one-warning-open", {})
        with mock.patch.object(stack, "acknowledge") as acknowledge:
            _synthesise(folder / "all-open", {})
    ((_, findings),) = (call.args for call in acknowledge.call_args_list)
    listed = [(finding.path, finding.rule, finding.reason) for finding in findings]
    (folder / "acknowledgements.json").write_text(json.dumps(listed), encoding="utf-8")


def _synthesise(outdir: Path, context: Mapping[str, object]) -> None:
    try:
        app.synthesise(str(outdir), context)
    except Exception as error:
        outdir.with_name(f"{outdir.name}.error").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
