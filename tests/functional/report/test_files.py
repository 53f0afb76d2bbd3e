"""What a report without a page imports."""

import subprocess
import sys


def test_json_alone_loads_no_template_engine() -> None:
    code = "import sys, trainguard.report.job.build, trainguard.report.job.build; print('jinja2' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"
