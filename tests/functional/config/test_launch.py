"""What the launch helpers import."""

import subprocess
import sys


def test_given_the_launch_helpers_when_imported_then_no_sdk_and_no_client_library_is() -> None:
    code = "import sys, trainguard.config; print([n for n in ('sagemaker', 'botocore', 'boto3') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
