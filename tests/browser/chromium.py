"""The browser of the tests: a headless Chromium that npm pins, unpacked once, with its own libraries and fonts.

So a bare machine needs no system packages, and a screenshot has the same fonts everywhere. The package is for Linux on
x86-64; elsewhere, TRAINGUARD_CHROMIUM names the browser to take.
"""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "node_modules" / "@sparticuz" / "chromium"
SETTING = "TRAINGUARD_CHROMIUM"
ARCHIVES = ("al2023.tar", "fonts.tar")

_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}/fonts</dir>
  <cachedir>{folder}/cache</cachedir>
  <alias><family>monospace</family><prefer><family>Open Sans</family></prefer></alias>
</fontconfig>
"""


class BrowserMissingError(RuntimeError):
    """There is no browser to test with; the message says what to do."""


@dataclass(frozen=True)
class Browser:
    """An executable, and what its environment needs beside this process's."""

    executable: Path
    environment: dict[str, str] = field(default_factory=dict)


def find_browser() -> Browser:
    """Return the browser that TRAINGUARD_CHROMIUM names, or the pinned one. Raises BrowserMissingError."""
    named = os.environ.get(SETTING)
    if named:
        if not os.access(named, os.X_OK):
            raise BrowserMissingError(f"{SETTING}={named} is not an executable file: name a Chromium or Chrome")
        return Browser(Path(named))
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        here = f"{sys.platform} on {platform.machine()}"
        raise BrowserMissingError(
            f"the pinned Chromium is for Linux on x86-64, this is {here}: set {SETTING} to the path of a Chromium or "
            "Chrome, for example '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome'"
        )
    if not (PACKAGE / "package.json").is_file():
        raise BrowserMissingError(
            f"{PACKAGE} is missing: run `make install`, or set {SETTING} to the path of a Chromium"
        )
    version = json.loads((PACKAGE / "package.json").read_text())["version"]
    return _unpacked(ROOT / "build" / f"chromium-{version}")


def _unpacked(folder: Path) -> Browser:
    """Unpack into ``folder`` unless that was done; one process unpacks, others wait for it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"
        if not done.exists():
            _unpack(folder)
            done.touch()
    libraries = f"{folder}/al2023/lib"
    environment = {
        "LD_LIBRARY_PATH": libraries,
        "FONTCONFIG_PATH": str(folder / "fonts"),
        "FONTCONFIG_FILE": str(folder / "fonts" / "fonts.conf"),
    }
    return Browser(folder / "chromium", environment)


def _unpack(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    names = ("chromium", *ARCHIVES)
    paths = [str(path) for name in names for path in (PACKAGE / "bin" / f"{name}.br", folder / name)]
    node = shutil.which("node")
    if node is None:
        raise BrowserMissingError(f"node is missing, which unpacks the browser: install Node.js, or set {SETTING}")
    subprocess.run([node, str(Path(__file__).with_name("unpack.mjs")), *paths], check=True)
    for name in ARCHIVES:
        with tarfile.open(folder / name) as archive:
            # Python has had the filter since 3.11.4; the package is held to its digest in any case.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder / name.removesuffix(".tar"))  # noqa: S202 -- by the filter above
        (folder / name).unlink()
    (folder / "chromium").chmod(0o755)
    fonts = folder / "fonts"
    (fonts / "fonts.conf").write_text(_FONTS.format(folder=fonts))
