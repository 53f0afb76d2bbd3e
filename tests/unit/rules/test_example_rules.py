"""The example of a deployment's own rule: HostMemory."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.node_snapshots import node_minute  # noqa: F401
