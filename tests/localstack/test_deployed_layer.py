"""What the deployed functions import."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.localstack.emulator_kit import RUNTIME, invoke, until, zipped
from tests.localstack.stack import PATIENCE_S, Stack

if TYPE_CHECKING:
    from emulator.launch import Emulator

pytestmark = pytest.mark.localstack


def test_function_imports_come_only_from_the_deployed_layer(stack: Stack, emulator: Emulator) -> None:
    client = emulator.client("lambda")
    deployed = client.get_function_configuration(FunctionName=stack.functions["evaluate_objects"])
    source = (
        "import sys, numpy, msgspec, aws_lambda_powertools, trainguard\n"
        "def handler(event, context):\n"
        "    modules = (numpy, msgspec, aws_lambda_powertools, trainguard)\n"
        "    sizes = numpy.arange(6, dtype=numpy.float32).reshape(2, 3).sum(axis=1)\n"
        "    return {'files': [m.__file__ for m in modules], 'sums': sizes.tolist(), 'version': numpy.__version__}\n"
    )
    client.create_function(
        FunctionName="layer-probe",
        Runtime=RUNTIME,
        Role=deployed["Role"],
        Handler="app.handler",
        Code={"ZipFile": zipped({"app.py": source})},
        Layers=[layer["Arn"] for layer in deployed["Layers"]],
        Timeout=20,
    )
    until(
        lambda: client.get_function_configuration(FunctionName="layer-probe")["State"] == "Active",
        timeout_s=PATIENCE_S,
        what="the probe function",
    )

    answer, error = invoke(emulator, "layer-probe", {})

    assert error is None, answer
    assert answer["sums"] == [3.0, 12.0]
    assert not [file for file in answer["files"] if "site-packages" in file or ".venv" in file]
    assert len({file.partition("/python/")[0] for file in answer["files"]}) == 1
