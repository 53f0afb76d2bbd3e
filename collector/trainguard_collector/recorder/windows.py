"""The windows of steps that a recorder opens: kernel traces, operators, functions."""

from functools import partial
from typing import Optional

from trainguard_collector.recorder.kernel_traces import KernelTraces
from trainguard_collector.recorder.operators import record_operators
from trainguard_collector.recorder.profiles import FrameworkProfile, KernelProfile
from trainguard_collector.recorder.python_window import PythonWindow
from trainguard_collector.recorder.recorder import Recorder
from trainguard_collector.recorder.torch_window import TorchWindow


def open_windows(recorder: Recorder, profile: Optional[FrameworkProfile], kernels: Optional[KernelProfile]) -> None:
    """Open the windows; each of them opens and ends by itself where steps begin and end."""
    if kernels is not None:
        KernelTraces(recorder, kernels)
    if profile is not None and profile.detailed is not None:
        TorchWindow(recorder, profile.detailed.range, partial(record_operators, recorder), record_shapes=False)
    if profile is not None and profile.python is not None:
        PythonWindow(recorder, profile.python)
