"""smdebug beside the reader of debug-output: `make bench-smdebug`, for whoever wants to compare.

It is installed into a folder of its own, below ``build``. Both read the same run of full gradients, and return the
least mean of absolute values: what VanishingGradient asks. Imports do not count, nor the second that smdebug waits.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.support.run_folder import steps_of
from tests.support.tensor_files import HookWriter
from trainguard.rules.training.readings import abs_mean

FOLDER = Path(__file__).parents[2] / "build" / "smdebug"
PACKAGES = ("smdebug==1.0.34", "protobuf==3.20.3", "numpy<2.3", "requests", "pandas", "psutil")
STEPS, TENSORS, SHAPE = 50, 40, (128, 128)
ANALYSIS = """
import json, sys, time
import numpy as np
from smdebug.trials import create_trial
start = time.perf_counter()
trial = create_trial(sys.argv[1])
means = [
    float(np.abs(trial.tensor(name).value(step)).mean())
    for step in trial.steps()
    for name in trial.tensor_names(step=step, collection="gradients")
]
print(json.dumps({"seconds": time.perf_counter() - start, "tensors": len(means), "least": min(means)}))
"""
ENVIRONMENT = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python", "SMDEBUG_TRAINING_END_DELAY_REFRESH": "0"}


def main() -> None:
    """Install the peer, read one run with both, and print how long each took."""
    python = FOLDER / "bin" / "python"
    uv = os.environ["UV"]
    if not python.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(FOLDER)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *PACKAGES], check=True)
    with tempfile.TemporaryDirectory() as folder:
        run = written(Path(folder))
        start = time.perf_counter()
        means = [abs_mean(step, name) for step in steps_of(run) for name in sorted(step.members("gradients"))]
        took = time.perf_counter() - start
        done = subprocess.run(
            [python, "-c", ANALYSIS, str(run)],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        peer = json.loads(done.stdout.strip().splitlines()[-1])
        least = min(each for each in means if each is not None)
        assert len(means) == peer["tensors"]
        assert np.isclose(least, peer["least"], rtol=1e-5)
        size = STEPS * TENSORS * np.prod(SHAPE) * 4 / 1e6
        print(
            f"{len(means):,} tensors, {size:.0f} MB: TrainGuard {took:.2f} s; {PACKAGES[0]} {peer['seconds']:.2f} s; "
            f"{peer['seconds'] / took:.1f} times as fast",
            flush=True,
        )


def written(folder: Path) -> Path:
    """Write a run of gradients, and the mark of its end."""
    random = np.random.default_rng(0)
    names = [f"gradient/layer{place}.weight" for place in range(TENSORS)]
    writer = HookWriter().collections({"gradients": (names, [])})
    for step in range(STEPS):
        writer = writer.step(step, {name: random.normal(size=SHAPE).astype(np.float32) for name in names})
    return writer.end().save_to(folder)


if __name__ == "__main__":
    main()
