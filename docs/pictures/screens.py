"""Photographs the pages for the documents: ``python -m docs.pictures.screens`` (``make pictures``) writes PNG files.

Each is what the commands of the documents show: the browser of the tests opens the page that a command wrote from
inputs of the repository. Times, locale and window are fixed, so only a change of a page changes its picture.
"""

import dataclasses
import html
import io
import json
import lzma
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from demo.profile import write_profile
from demo.recording import Recording
from tests.browser.chromium import find_browser
from trainguard.engine.settings.tag_names import STOP_ALLOWED, STOP_TAG
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures" / "screens"
ENDED_AT = datetime.fromisoformat("2026-11-02T10:30:00+00:00").timestamp()
COLOURS = 128
"""Of a palette: a screen of text and flat areas looks the same, at a third of the bytes."""

DRAWN_MS = 1_000
"""Until what came into sight is drawn."""

_ARGUMENTS = ["--no-sandbox", "--font-render-hinting=none", "--disable-lcd-text", "--force-color-profile=srgb"]
_MAIL = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 24px; background: #eef1f4; font: 15px/1.5 "Open Sans", sans-serif; color: #1c2430 }}
main {{ max-width: 880px; margin: auto; background: #fff; border: 1px solid #d5dbe1; border-radius: 8px }}
h1 {{ font-size: 19px; margin: 0; padding: 18px 24px; border-bottom: 1px solid #d5dbe1 }}
p {{ margin: 0; padding: 18px 24px; white-space: pre-wrap; overflow-wrap: anywhere }}
</style><main><h1>{subject}</h1><p>{text}</p></main>"""


@dataclasses.dataclass(frozen=True, slots=True)
class Screen:
    """A picture: the page it is of, the window's size in pixels, and the element at the window's top."""

    write: Callable[[Path], Path]
    width: int = 1280
    height: int = 860
    element: str | None = None


def _trainguard(folder: Path, *words: str) -> None:
    """Run a command; a finding, or a job that is not judged, is no error."""
    command = [sys.executable, "-m", "trainguard", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 -- our own
    if done.returncode not in {0, 1, 3}:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")


def _profile(folder: Path, recording: str, job: str) -> Path:
    target = folder / job
    write_profile(Recording.load(ROOT / "events" / "jobs" / f"{recording}.npz"), target, ended_at=ENDED_AT)
    return target


def _report(folder: Path) -> Path:
    job = _profile(folder, "slow_data_loader", "resnet50")
    _trainguard(folder, "report", job.name, "--out", "page", "--instance-type", "ml.p3.8xlarge")
    return folder / "page" / "report.html"


def _training(folder: Path) -> Path:
    """Write the page of a run whose loss diverges, from the file that Hugging Face's Trainer leaves."""
    steps = range(10, 4_001, 10)
    history = [{"step": step, "loss": _loss(step), "learning_rate": 3e-4} for step in steps]
    run = folder / "llm-finetune" / "checkpoints"
    run.mkdir(parents=True)
    state = {"global_step": 4_000, "max_steps": 4_000, "log_history": history}
    (run / "trainer_state.json").write_text(json.dumps(state), "utf-8")
    _trainguard(folder, "report", "llm-finetune", "--out", "page")
    return folder / "page" / "report.html"


def _loss(step: int) -> float:
    falls = 1.8 + 2.4 * math.exp(-step / 700) + 0.06 * math.sin(step / 7)
    return falls if step < 2_600 else falls * math.exp((step - 2_600) / 300)


def _fleet(folder: Path) -> Path:
    for job in ("slow_data_loader", "cpu_bottleneck", "slow_steps", "late_first_step", "healthy"):
        _profile(folder, job, f"runs/{job.replace('_', '-')}")
    _trainguard(folder, "report", "./runs", "--out", "page")
    return folder / "page" / "fleet.html"


def _kernels(folder: Path) -> Path:
    packed = ROOT / "tests" / "data" / "kernel_traces" / "nsight_2026.sqlite.xz"
    (folder / "trace.sqlite").write_bytes(lzma.decompress(packed.read_bytes()))
    _trainguard(folder, "kernels", "trace.sqlite", "--out", "page")
    return folder / "page" / "kernels.html"


def _alert(folder: Path) -> Path:
    """Write the mail about the first finding of the report, in the event of ``events/compose_alert.json``."""
    report = json.loads((_report(folder).parent / "report.json").read_text("utf-8"))
    request = json.loads((ROOT / "events" / "compose_alert.json").read_text("utf-8"))
    found, job = report["findings"][0], request["fire"]["job"]
    request["fire"] |= {
        "rule": found["rule"],
        "reason": found["reason"],
        "advice": found["advice"],
        "severity": found["severity"],
        "cost": found["cost"],
        "episodes": found["episodes"],
        "firedAt": found["episodes"][0]["start"],
    }
    request["decision"]["why"] = f"{STOP_TAG} is {STOP_ALLOWED!r} on job {job}, which is in progress"
    alert = compose_alert(AlertRequest.read(request), now=0.0)
    page = folder / "alert.html"
    page.write_text(_MAIL.format(subject=html.escape(alert.subject), text=html.escape(alert.text)), "utf-8")
    return page


SCREENS: Mapping[str, Screen] = MappingProxyType(
    {
        "report": Screen(_report),
        "timelines": Screen(_report, element="#tl", height=760),
        "ledger": Screen(_report, element="#ledger", height=520),
        "training": Screen(_training, element="#training-series", height=520),
        "alert": Screen(_alert, width=980, height=540),
        "fleet": Screen(_fleet),
        "kernels": Screen(_kernels),
    }
)


def _photograph(page: Page, screen: Screen, file: Path) -> bytes:
    page.set_viewport_size({"width": screen.width, "height": screen.height})
    page.goto(file.as_uri())
    if screen.element is None:
        return page.screenshot()
    page.locator(screen.element).first.evaluate("each => each.scrollIntoView({ block: 'start', behavior: 'instant' })")
    page.wait_for_timeout(DRAWN_MS)
    return page.screenshot()


def _packed(picture: bytes) -> bytes:
    small = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).save(small, "PNG", optimize=True)
    return small.getvalue()


def main(names: list[str]) -> None:
    """Write the named pictures, or all."""
    FOLDER.mkdir(exist_ok=True)
    found = find_browser()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as temporary:
        environment: dict[str, str | float | bool] = {**os.environ, **found.environment, "LANG": "en_US.UTF-8"}
        browser = playwright.chromium.launch(executable_path=found.executable, args=_ARGUMENTS, env=environment)
        page = browser.new_context(locale="en-US", timezone_id="UTC", device_scale_factor=1.0).new_page()
        written: dict[Callable[[Path], Path], Path] = {}
        for name in names or SCREENS:
            screen = SCREENS[name]
            if screen.write not in written:
                written[screen.write] = screen.write(Path(tempfile.mkdtemp(dir=temporary)))
            (FOLDER / f"{name}.png").write_bytes(_packed(_photograph(page, screen, written[screen.write])))
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
