"""Functions on the way of a fire import little: a cold start delays an alert and a stop."""

import ast
import os
import subprocess
import sys

import pytest

from tests.infra.synthesis import ROOT

_COUNT = "import sys; exec(sys.argv[1], {}); print(sum(name.startswith('trainguard.') for name in sys.modules))"


@pytest.mark.parametrize(
    ("function", "most"),
    [("admit_stop", 40), ("record_fire", 40), ("decide_stop", 160), ("stop_job", 150), ("send_alert", 155)],
)
def test_function_of_a_fire_imports_few_modules(function: str, most: int) -> None:
    handler = ROOT / "lambdas" / function / "handler.py"
    body = ast.parse(handler.read_text(encoding="utf-8")).body
    imports = "\n".join(ast.unparse(each) for each in body if isinstance(each, ast.Import | ast.ImportFrom))
    path = os.pathsep.join((str(ROOT / "rules_layer"), str(ROOT)))
    answer = subprocess.run(
        [sys.executable, "-c", _COUNT, imports],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(answer.stdout) <= most
