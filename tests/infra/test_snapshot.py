"""The whole template, as reviewed: a change of it must be seen, and `make snapshot` accepts it."""

import json
import os
import re
from pathlib import Path

import pytest

from infra.release.versions import with_steady_names
from tests.infra.template import Template

SNAPSHOT = Path(__file__).with_name("TrainGuard.snapshot.json")
ACCEPT = "TRAINGUARD_ACCEPT_SNAPSHOT"

_ASSET = re.compile(r"[0-9a-f]{64}\.zip")


def test_template_matches_the_snapshot(template: Template) -> None:
    document = with_steady_names(json.loads(_ASSET.sub("<asset>.zip", template.text)))
    normalised = json.dumps(document, indent=1) + "\n"
    if os.environ.get(ACCEPT):
        SNAPSHOT.write_text(normalised, encoding="utf-8")
    if not SNAPSHOT.exists() or SNAPSHOT.read_text(encoding="utf-8") != normalised:
        pytest.fail(f"the template is not {SNAPSHOT.name} any more: review the change, then run `make snapshot`")
