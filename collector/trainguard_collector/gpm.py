"""NVML's GPU performance monitoring, of GPUs since Hopper: how busy the parts of a GPU were between two samples."""

import math
from collections.abc import Callable, Iterator
from typing import Any

_MEBI = 2.0**20
_METRICS = {
    "SMActivityPercent": ("NVML_GPM_METRIC_SM_UTIL", 1.0),
    "SMOccupancyPercent": ("NVML_GPM_METRIC_SM_OCCUPANCY", 1.0),
    "TensorActivityPercent": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 1.0),
    "DRAMActivityPercent": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 1.0),
}
_TRAFFIC = {
    "PCIeTransmittedBytesPerSecond": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", _MEBI),
    "PCIeReceivedBytesPerSecond": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", _MEBI),
    "NVLinkTransmittedBytesPerSecond": ("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", _MEBI),
    "NVLinkReceivedBytesPerSecond": ("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", _MEBI),
}


def has_gpm(nvml: Any, handle: Any) -> bool:
    """Whether a GPU has these metrics."""
    try:
        return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    except Exception:
        return False


class Gpm:
    """The metrics of one GPU or MIG instance; ``take`` fills a sample of NVML's, ``lack`` is called for what is absent.

    Source: NVML API reference, "GPM Functions": values are percent, and MiB a second, of the time between two samples.
    """

    def __init__(
        self,
        nvml: Any,
        take: Callable[[Any], object],
        lack: Callable[[str, object], None],
        *,
        prefix: str = "",
        with_traffic: bool = True,
    ) -> None:
        self._nvml, self._take, self._lack, self._prefix = nvml, take, lack, prefix
        self._metrics = {**_METRICS, **_TRAFFIC} if with_traffic else dict(_METRICS)
        self._samples: list[Any] = []
        self._has_earlier = False
        self._works = True

    def measures(self, name: str) -> bool:
        """Whether a series comes from here, as far as is known: the first value comes with the second reading."""
        return self._works and name in self._metrics

    def read(self, _: float) -> Iterator[tuple[str, str, float]]:
        """Yield the means since the last reading; nothing the first time."""
        nvml, self._works = self._nvml, False
        while len(self._samples) < 2:
            self._samples.append(nvml.nvmlGpmSampleAlloc())
        earlier, now = self._samples
        self._take(now)
        has_earlier, self._has_earlier = self._has_earlier, True
        self._samples = [now, earlier]
        if has_earlier and self._metrics:
            yield from self._between(earlier, now)
        self._works = True

    def _between(self, earlier: Any, now: Any) -> Iterator[tuple[str, str, float]]:
        nvml, request = self._nvml, self._nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(self._metrics)
        request.sample1, request.sample2 = earlier, now
        for place, (constant, _) in enumerate(self._metrics.values()):
            request.metrics[place].metricId = getattr(nvml, constant)
        nvml.nvmlGpmMetricsGet(request)
        for place, (name, (_, factor)) in enumerate(list(self._metrics.items())):
            answer = request.metrics[place]
            value = answer.value * factor
            if answer.nvmlReturn:
                del self._metrics[name]
                if name in _METRICS:  # of traffic there are counters as well
                    self._lack(f"{self._prefix}{name}", nvml.NVMLError(answer.nvmlReturn))
            elif math.isfinite(value) and value >= 0.0:
                yield f"{self._prefix}{name}", "", value
