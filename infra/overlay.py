"""The one place in which the template for an emulator may differ from the one for AWS."""

import platform
import sys
from dataclasses import dataclass, replace

from infra.config import DeploymentConfig


@dataclass(frozen=True, slots=True)
class Overlay:
    """Properties of the functions' platform.

    Attributes
    ----------
    python_version : str
        ``major.minor``.
    architecture : {"arm64", "x86_64"}
        Instruction set of the functions and of the layer's compiled parts, in Lambda's word.
    wheel_platform : str
        The same, in uv's word.
    logs_deliveries : bool
        Whether topics can log failed deliveries; an emulator refuses a topic that is to.
    """

    python_version: str
    architecture: str
    wheel_platform: str
    batching_window_s: int
    logs_deliveries: bool = True


# The newest Python that Lambda, CI and the emulator have: what is deployed is what the tests run on.
AWS = Overlay(
    python_version="3.13",
    architecture="arm64",
    wheel_platform="aarch64-manylinux_2_28",
    batching_window_s=20,
)


def chosen(config: DeploymentConfig) -> Overlay:
    return emulator() if config.emulator else on_aws(config.architecture)


def on_aws(architecture: str) -> Overlay:
    """Return the overlay for AWS with functions of an instruction set; some Regions have no ``arm64``."""
    cpu = "aarch64" if architecture == "arm64" else "x86_64"
    return replace(AWS, architecture=architecture, wheel_platform=f"{cpu}-manylinux_2_28")


def emulator() -> Overlay:
    """Return the overlay for functions that an emulator runs as processes of this machine's Python."""
    arm = platform.machine() in {"arm64", "aarch64"}
    cpu = "aarch64" if arm else "x86_64"
    return Overlay(
        python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
        architecture="arm64" if arm else "x86_64",
        wheel_platform=f"{cpu}-apple-darwin" if sys.platform == "darwin" else f"{cpu}-manylinux_2_28",
        batching_window_s=1,
        logs_deliveries=False,
    )
