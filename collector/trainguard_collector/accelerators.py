"""The accelerators of the node: NVIDIA and AMD GPUs, and NeuronCores."""

from typing import Optional

from trainguard_collector.amd import find_amd
from trainguard_collector.gpu import Gpus
from trainguard_collector.lines import Sample
from trainguard_collector.metrics import Device
from trainguard_collector.neuron import Neuron
from trainguard_collector.patient import Patient


class Accelerators:
    """Finds them when made; `faults` says which are lost or not measured."""

    def __init__(self, at: float, interval_s: float) -> None:
        self.faults: dict[str, str] = {}
        # Its process is started by the main thread: it ends with the thread that has started it.
        self._neuron: Optional[Neuron] = Neuron.find(self.faults, interval_s)
        self._gpus = Patient(self._find, self.faults, at)

    def _find(self) -> list[Device]:
        found = Gpus(faults=self.faults).devices
        return found or find_amd(self.faults)

    def __len__(self) -> int:
        return len(self._gpus) + (len(self._neuron) if self._neuron is not None else 0)

    @property
    def lost(self) -> list[str]:
        """The names of the GPUs that are gone, or do not answer."""
        return self._gpus.lost

    def read(self, at: float, *, with_slow: bool) -> list[Sample]:
        """Return the samples at ``at``, in seconds of a clock that never goes back."""
        samples = self._gpus.read(at, with_slow=with_slow)
        if self._neuron is not None:
            samples += self._neuron.read(at, with_slow=with_slow)
        return samples

    def close(self) -> None:
        """End what was started."""
        if self._neuron is not None:
            self._neuron.close()
