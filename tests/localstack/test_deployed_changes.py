"""What a deployment would change, and what a deletion would leave."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from emulator.deploy import differences
from infra.teardown import read_fate

if TYPE_CHECKING:
    from pathlib import Path

    from emulator.launch import Emulator
    from tests.localstack.stack import Stack

pytestmark = pytest.mark.localstack


def test_deployed_stack_differs_only_once_its_template_changes(
    emulator: Emulator, stack: Stack, assembly: Path, tmp_path: Path
) -> None:
    assert differences(emulator, assembly=assembly, home=tmp_path / "home") == 0

    changed = shutil.copytree(assembly, tmp_path / "cdk.out")
    template = changed / f"{stack.name}.template.json"
    document = json.loads(template.read_text(encoding="utf-8"))
    (table,) = [name for name in document["Resources"] if name.startswith("StorageRuleState")]
    document["Resources"][table]["Properties"]["DeletionProtectionEnabled"] = True
    template.write_text(json.dumps(document), encoding="utf-8")
    assert differences(emulator, assembly=changed, home=tmp_path / "home") == 1


def test_kept_bucket_tables_and_logs_are_named(emulator: Emulator, stack: Stack) -> None:
    fate = read_fate(emulator.client("cloudformation"), stack.name)
    kinds = {kind for kind, _ in fate.stays}
    assert kinds == {"AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::Logs::LogGroup"}
    assert stack.deployment.bucket in {name for _, name in fate.stays}
    assert fate.buckets == ()
