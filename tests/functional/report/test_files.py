"""What a report without a page imports."""

import subprocess
import sys


def test_given_json_alone_when_made_then_no_template_engine_is_loaded() -> None:
    code = "import sys, trainguard.report.files, trainguard.report.write; print('jinja2' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"
