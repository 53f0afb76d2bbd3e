"""Builds the stand-ins: a library for NVML's real bindings, and the files of a kernel with many cores."""

import os
import shutil
import subprocess
import warnings
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
REPOSITORY = Path(__file__).resolve().parents[3]
GPUS = 8
_BINDINGS = """
from tests.collector.nvml_stub import Nvml
_nvml = Nvml(8, gpm={{2: 2.0, 3: 3.0, 5: 5.0, 10: 10.0, 20: 20.0, 21: 21.0}})
def __getattr__(name):
    return getattr(_nvml, name)
"""


def environment_with_gpus(folder: Path) -> dict[str, str]:
    """Return variables with which a program finds eight GPUs by the bindings that it has.

    Where there is no C compiler, a module takes the place of the bindings, and a warning says so.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        warnings.warn("no C compiler: NVML's real bindings are not tested, a Python module stands in", stacklevel=2)
        (folder / "pynvml.py").write_text(_BINDINGS.format())
        return {"PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return {"LD_LIBRARY_PATH": os.pathsep.join([str(folder), os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(":")}


class Procfs:
    """A folder like ``/proc`` of a node with ``cores`` cores, with lines as long as such a node's are."""

    def __init__(self, folder: Path, cores: int = 96) -> None:
        self.folder, self._cores, self._ticks = folder, cores, 0
        (folder / "net").mkdir(parents=True)
        (folder / "self").mkdir()
        (folder / "self/cgroup").write_text("0::/\n")
        names = ("MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "Active", "Inactive", "Shmem", "Slab")
        sizes = (1_600_000_000, 400_000_000, 1_200_000_000, 0, 0, 0, 0, 0, 0)
        (folder / "meminfo").write_text("".join(f"{n}: {kb} kB\n" for n, kb in zip(names, sizes, strict=True)))
        self.advance()

    def advance(self) -> None:
        """Let a tenth of a second pass: 7 of 10 ticks of each core are busy, and each device moves some bytes."""
        self._ticks += 10
        at = self._ticks
        cores = "".join(f"cpu{n} {at * 7 // 10} 0 0 {at * 3 // 10} 0 0 0 0 0 0\n" for n in range(self._cores))
        interrupts = f"intr {at} {'0 ' * 2_000}\nctxt {at}\nbtime 1\n"
        self._write("stat", f"cpu 0 0 0 0 0 0 0 0 0 0\n{cores}{interrupts}")
        rows = "".join(f"{name}: {at * 1_000} 0 0 0 0 0 0 0 {at * 500} 0 0 0 0 0 0 0\n" for name in ("eth0", "eth1"))
        self._write("net/dev", f"Inter-| Receive | Transmit\n face |bytes packets\n{rows}")
        disks = "".join(f" 259 {n} nvme{n}n1 {at} 0 {at * 8} 0 {at} 0 {at * 8} 0 0 0 0\n" for n in range(GPUS))
        self._write("diskstats", disks)

    def _write(self, name: str, text: str) -> None:
        draft = self.folder / f"{name}.new"
        draft.write_text(text)
        draft.replace(self.folder / name)
