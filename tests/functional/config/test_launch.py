"""What the launch helpers import."""

import subprocess
import sys


def test_launch_helpers_import_no_sdk_or_client_library() -> None:
    code = "import sys, trainguard.config; print([n for n in ('sagemaker', 'botocore', 'boto3') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
