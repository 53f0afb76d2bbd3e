"""Where the sources are: in a checkout beside `infra`, in the installed package `trainguard_cdk` below it."""

import os
from pathlib import Path

import trainguard

_HERE = Path(__file__).resolve().parent
INSTALLED = (_HERE / "lambdas").is_dir()

# Paths in settings start here.
PROJECT_ROOT = Path.cwd() if INSTALLED else _HERE.parent
LAMBDAS = (_HERE if INSTALLED else PROJECT_ROOT) / "lambdas"
PACKAGE_SOURCE = Path(trainguard.__file__).parent if INSTALLED else PROJECT_ROOT / "rules_layer" / "trainguard"

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
BUILD_FOLDER = _CACHE / "trainguard" / "layers" if INSTALLED else PROJECT_ROOT / "build" / "layers"
