"""The pinned browser brings what it needs; a missing one is an error that says what to do."""

import platform
import subprocess
from pathlib import Path

import pytest

from tests.browser import chromium
from tests.browser.chromium import SETTING, BrowserMissingError, find_browser

BROUGHT = ("libnss3.so", "libnssutil3.so", "libnspr4.so", "libplc4.so", "libplds4.so", "libexpat.so.1")
OF_ANY_SYSTEM = {
    *("linux-vdso.so.1", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libgcc_s.so.1"),
    "/lib64/ld-linux-x86-64.so.2",
}


def test_pinned_browser_runs_on_the_libraries_of_a_bare_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    found = find_browser()
    listed = subprocess.run(
        ["/usr/bin/ldd", str(found.executable)], env=found.environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    loaded = {line.split()[0]: line for line in listed}
    assert set(loaded) - OF_ANY_SYSTEM == set(BROUGHT)
    assert all(str(found.executable.parent) in loaded[name] for name in BROUGHT)
    assert "not found" not in "".join(listed)


def test_custom_browser_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "chrome"
    own.touch(0o755)
    monkeypatch.setenv(SETTING, str(own))
    assert find_browser() == chromium.Browser(own)


def test_missing_browser_path_error_names_the_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(SETTING, str(tmp_path / "none"))
    with pytest.raises(BrowserMissingError, match=f"{SETTING}=.*none is not an executable file"):
        find_browser()


def test_missing_package_error_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setattr(chromium, "PACKAGE", tmp_path / "chromium")
    with pytest.raises(BrowserMissingError, match="run `make install`"):
        find_browser()


def test_unsupported_platform_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(BrowserMissingError, match=f"set {SETTING} to the path of a Chromium"):
        find_browser()


def test_missing_node_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrowserMissingError, match=r"node is missing.*install Node\.js"):
        chromium._unpack(tmp_path / "browser")
