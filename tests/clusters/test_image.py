"""The collector's image runs without root and from pinned packages, and what it copies into a pod starts there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from infra.places import PROJECT_ROOT

IMAGE = PROJECT_ROOT / "deploy" / "image"


def test_image_runs_without_root_from_packages_with_hashes() -> None:
    lines = (IMAGE / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    user = [line.split()[1] for line in lines if line.startswith("USER ")][-1]
    assert all(int(each) >= 10_000 for each in user.split(":"))
    assert all(re.search(r":\d+\.\d+-slim-\w+( |$)", line) for line in lines if line.startswith("FROM "))
    installs = [part for line in lines for part in line.split("&&") if "pip install" in part]
    assert installs
    assert all("--require-hashes" in part or "--no-deps --no-index" in part for part in installs)
    node, inject = (
        set(re.findall(r"^([\w-]+)==", (IMAGE / name).read_text(), re.M)) for name in ("node.lock", "inject.lock")
    )
    assert {"boto3", "psutil", "nvidia-ml-py"} < inject < node
    assert "grpcio" in node - inject


def test_copied_collector_starts_and_hides_nothing_of_the_image(tmp_path: Path) -> None:
    packages = tmp_path / "inject" / "packages" / "trainguard_collector"
    packages.mkdir(parents=True)
    (tmp_path / "inject/sitecustomize.py").write_text((IMAGE / "inject/sitecustomize.py").read_text())
    (packages / "__init__.py").touch()
    (packages / "autostart.py").write_text("def begin(): print('begun')")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("print('own')")
    path = f"{tmp_path / 'inject'}:{tmp_path / 'own'}"

    def said(**variables: str) -> list[str]:
        call = [str(Path(sys.executable).resolve()), "-c", "import sys; print(sys.path[-1])"]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path, **variables}
        done = subprocess.run(call, env=environment, stdout=subprocess.PIPE, check=True, text=True)
        return done.stdout.split()

    assert said(TRAINGUARD_OUTPUT="s3://b/jobs") == ["begun", "own", str(packages.parent)]
    assert said()[0] == "own"
