"""The layer's bytecode: of the functions' Python, made of the sources beside it, and read without looking at them."""

import _imp
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra import bytecode, overlay
from infra.bundling import layer_folder
from infra.bytecode import BytecodeError, compile_site, compiler
from infra.compile_all import SITE_OF_THE_FUNCTIONS
from infra.places import PROJECT_ROOT

MAGIC_OF_3_13 = (3571).to_bytes(2, "little") + b"\r\n"
UNCHECKED_HASH = (0b01).to_bytes(4, "little")
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_layer_modules_have_unchecked_bytecode() -> None:
    site = layer_folder(overlay.AWS) / "python"
    sources = set(site.rglob("*.py"))
    assert len(sources) > 300
    compiled = set(site.rglob("*.pyc"))
    assert compiled == {source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc" for source in sources}
    for source in sources:
        header = (source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc").read_bytes()[:16]
        assert header[:8] == MAGIC_OF_3_13 + UNCHECKED_HASH
        assert header[8:] == _imp.source_hash(int.from_bytes(MAGIC_OF_3_13, "little"), source.read_bytes())


def test_bytecode_names_the_function_folder_and_not_this_machine() -> None:
    site = layer_folder(overlay.AWS) / "python"
    held = (site / "trainguard" / "core" / "__pycache__" / "errors.cpython-313.pyc").read_bytes()
    assert f"{SITE_OF_THE_FUNCTIONS}/trainguard/core/errors.py".encode() in held
    assert not [file for file in site.rglob("*.pyc") if str(site.parent.parent).encode() in file.read_bytes()]


def test_bytecode_of_this_python_runs_without_compiling(
    tmp_path: Path,
) -> None:
    (tmp_path / "answer.py").write_text("VALUE = 'compiled ahead'\n", encoding="utf-8")
    compile_site(tmp_path, HERE)
    (tmp_path / "answer.py").write_text("VALUE = 'compiled now'\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-B", "-c", "import answer; print(answer.VALUE, answer.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["compiled", "ahead", str(tmp_path / "answer.py")]


@pytest.mark.parametrize("version", [HERE, overlay.AWS.python_version])
def test_module_that_does_not_compile_is_named(tmp_path: Path, version: str) -> None:
    (tmp_path / "broken.py").write_text("value = (\n", encoding="utf-8")
    with pytest.raises(BytecodeError, match=rf"(?s)Python {version}'s bytecode: .*broken\.py.*SyntaxError"):
        compile_site(tmp_path, version)


def test_pyodide_of_other_applications_is_the_locked_one() -> None:
    locked = json.loads((PROJECT_ROOT / "package-lock.json").read_text("utf-8"))["packages"]["node_modules/pyodide"]
    assert locked["version"] == bytecode.PYODIDE_VERSION


def test_missing_python_version_error_names_both(tmp_path: Path) -> None:
    with pytest.raises(BytecodeError, match=rf"this is Python {HERE}, the functions run on 3\.9"):
        compile_site(tmp_path, "3.9")


def test_missing_pyodide_error_says_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode, "PYODIDE", tmp_path / "package.json")
    with pytest.raises(BytecodeError, match="run `make install`"):
        compiler(overlay.AWS.python_version)


def test_missing_node_error_says_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(BytecodeError, match=r"install Node\.js 20"):
        compile_site(tmp_path, overlay.AWS.python_version)
