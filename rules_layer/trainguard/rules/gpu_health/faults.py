"""State of each GPU's health, minute by minute: faults that last, and minutes under load."""

from collections.abc import Iterable, Mapping
from statistics import median

import msgspec
import numpy as np

from trainguard.formats.profile import snapshots as names
from trainguard.formats.profile.snapshots import DeviceSamples, DeviceSeries
from trainguard.rules.rule_inputs import NodeMinute
from trainguard.rules.sample_statistics import means_of

# Codes of hardware, whose node is replaced, but for one that a reset of the GPU may end.
XID_FAULTS = {
    48: "a double-bit ECC error",
    54: "auxiliary power is not connected",
    62: "the GPU's microcontroller halted",
    64: "a faulty memory row could not be remapped",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    94: "a contained uncorrectable ECC error",
    95: "an uncontained uncorrectable ECC error",
    119: "the GPU's system processor timed out",
    120: "the GPU's system processor failed",
    140: "an unrecovered ECC error",
    143: "the GPU could not be initialized",
}

XID_ENDED_BY_RESET = 94

# Codes of the program, for which no GPU is to blame; more than these are not named.
XID_OF_PROGRAMS = {
    13: "a fault in a kernel, such as an access out of bounds",
    31: "an access to memory that is not mapped",
    43: "a kernel that was stopped",
    45: "a process that was ended",
}

THROTTLED_SHARE = 0.5
KEPT_MINUTES = 10
# A GPU that is less busy in a minute lowers its clock and its link by itself.
LOADED_PERCENT = 50.0

POWER_CAP = 0x4
# Bits of ThrottleReasons: software and hardware heat, an external power brake, a slowdown by hardware of any kind.
HEAT, POWER_BRAKE, SLOWDOWN = 0x20 | 0x40, 0x80, 0x8

HARMFUL = HEAT | POWER_BRAKE | SLOWDOWN
# Of the highest possible clock a GPU may lose so much under load without a fault: its power is limited.
CLOCK_UNDER_MAXIMUM = 0.8
# A GPU at its power limit whose clock is below this share of its peers' has another limit than they have.
CAPPED_CLOCK = 0.85

MOST_XIDS = 16
MOST_GPUS = 64
NEURON = "neuron"
# A GPU without a sample in so many minutes, while others of its node have some, has vanished.
SILENT_MINUTES = 3

# What health is judged by, in words, and the series of each; a clock alone says nothing without the reasons for it.
HEALTH_SERIES: Mapping[str, tuple[str, ...]] = {
    "XID errors": (names.XID,),
    "ECC errors": (names.ECC_UNCORRECTED,),
    "remapped rows": (names.REMAPPING_FAILED,),
    "throttling": (names.THROTTLE_REASONS,),
    "PCIe width": (names.LINK_WIDTH,),
    "lost GPUs": (names.LOST, names.UNANSWERED),
}


class LoadedMinute(msgspec.Struct, array_like=True):
    """A minute in which the GPU was busy, at epoch seconds ``at``.

    ``heat``, ``brake``, ``cap`` are shares, 0 to 1, of readings with the reason; ``clock`` is in MHz, ``peers`` the
    median of the node's other busy, unslowed GPUs, None without two. ``width`` and ``peers_width`` are the narrowest
    link in lanes, None where not read. ``lost`` is the lost share, 0 to 1, of the clock; None without throttling or an
    earlier clock.
    """

    at: float
    heat: float
    brake: float
    cap: float
    clock: float | None
    peers: float | None
    width: float | None
    peers_width: float | None
    lost: float | None = None

    @property
    def reasons(self) -> float:
        return max(self.heat, self.brake)


class Seen(msgspec.Struct, array_like=True):
    """Something that was counted: how often in all, and when it was seen first and last, epoch seconds."""

    count: int
    first_at: float
    last_at: float


class GpuRecord(msgspec.Struct, array_like=True):
    """One GPU of the node; times are epoch seconds.

    ``uncorrected`` is the driver's newest count, ``new_errors`` the errors of this job. ``best_clock`` and
    ``best_width`` are the highest under load without a harmful reason. ``lost`` is in minutes of work; ``unanswered``
    counts the newest minutes in which the driver did not answer. ``xid`` is the newest code of a source without counts,
    which keeps the last one for ever; ``xid_before`` was set at the first sample, and is none of the job.
    """

    seen_at: float = 0.0
    lost_at: float | None = None
    silent: int = 0
    xids: dict[int, Seen] = msgspec.field(default_factory=dict)
    uncorrected: float | None = None
    new_errors: Seen | None = None
    failed_rows_at: float | None = None
    loaded: list[LoadedMinute] = msgspec.field(default_factory=list)
    best_clock: float | None = None
    best_width: float | None = None
    maximum_clock: float | None = None
    lost: float = 0.0
    counted_xids: dict[int, float] = msgspec.field(default_factory=dict)
    unanswered: int = 0
    unanswered_at: float | None = None
    xid: int | None = None
    xid_before: int | None = None


class HealthState(msgspec.Struct, array_like=True):
    """The node's GPUs by name, at most 64; ``minutes`` counts objects, ``seen`` names kinds of HEALTH_SERIES."""

    gpus: dict[str, GpuRecord] = msgspec.field(default_factory=dict)
    minutes: int = 0
    seen: list[str] = msgspec.field(default_factory=list)

    def fold(self, minute: NodeMinute) -> None:
        samples = minute.devices
        if not len(minute.snapshots) or not (self.gpus or samples.devices):
            return
        self.minutes += 1
        at = float(minute.snapshots.times[-1])
        self.seen = _with_kinds(self.seen, samples)
        named = {device for device in samples.devices if "." not in device}
        for gpu in sorted(named - self.gpus.keys(), key=lambda name: (len(name), name)):
            if len(self.gpus) < MOST_GPUS:
                self.gpus[gpu] = GpuRecord(seen_at=float(minute.snapshots.times[0]))
        measured, seen = _gpus_at_least(minute, 0.0), named & _present(samples)
        for gpu, record in self.gpus.items():
            if gpu in named:
                _note_faults(record, gpu, samples, at)
            if gpu in seen or gpu in measured:
                record.seen_at, record.silent = at, 0
            elif seen and not self.neuron_devices:
                record.silent += 1
        self._note_load(minute, samples, at)

    @property
    def neuron_devices(self) -> list[str]:
        """Devices of Trainium or Inferentia; their cores have samples only while a program uses them."""
        return [device for device in self.gpus if device.startswith(NEURON)]

    def _note_load(self, minute: NodeMinute, samples: DeviceSamples, at: float) -> None:
        busy = _gpus_at_least(minute, LOADED_PERCENT)
        clocks, widths = samples.of(names.SM_CLOCK), samples.of(names.LINK_WIDTH)
        free = {gpu for gpu in busy if gpu in clocks and not _share(samples, gpu, HARMFUL)}
        for gpu in busy & self.gpus.keys():
            record = self.gpus[gpu]
            clock = clocks[gpu].mean if gpu in clocks else None
            width = widths[gpu].least if gpu in widths else None
            if clock is None and width is None:
                continue
            loaded = LoadedMinute(
                at=at,
                heat=_share(samples, gpu, HEAT),
                brake=_share(samples, gpu, POWER_BRAKE | SLOWDOWN),
                cap=_share(samples, gpu, POWER_CAP),
                clock=clock,
                peers=_median_of([clocks[each].mean for each in free - {gpu}]),
                width=width,
                peers_width=_median_of([widths[each].least for each in busy & widths.keys() - {gpu}]),
            )
            record.loaded = [*record.loaded[-(KEPT_MINUTES - 1) :], loaded]
            if gpu in (maximum := samples.of(names.SM_CLOCK_MAXIMUM)):
                record.maximum_clock = maximum[gpu].last
            loaded.lost = _clock_lost(record, loaded)
            record.lost += loaded.lost or 0.0
            if clock is not None and gpu in free:
                record.best_clock = max(clock, record.best_clock or 0.0)
            if width is not None:
                record.best_width = max(width, record.best_width or 0.0)


def _present(samples: DeviceSamples) -> set[str]:
    """Return the devices that a sample shows to be there; codes of errors are kept of one that is lost."""
    return {
        device
        for metric, by_device in samples.by_metric.items()
        if not metric.startswith(names.XID)
        for device in by_device
    }


def _with_kinds(known: list[str], samples: DeviceSamples) -> list[str]:
    if len(known) == len(HEALTH_SERIES):
        return known
    metrics = {names.XID if metric.startswith(names.XID_COUNT) else metric for metric in samples.by_metric}
    return [kind for kind, series in HEALTH_SERIES.items() if kind in known or metrics.intersection(series)]


def _clock_lost(record: GpuRecord, loaded: LoadedMinute) -> float | None:
    """Return which share, 0 to 1, of its clock a throttled GPU lost in its newest minute; None without throttling.

    The clock is compared with that of its peers; without them with its own before, and then with its highest possible
    one, which a GPU at its power limit does not reach.
    """
    if loaded.clock is None:
        return None
    if loaded.reasons >= THROTTLED_SHARE:
        reference = loaded.peers or record.best_clock
        if reference is None and record.maximum_clock is not None and loaded.cap < THROTTLED_SHARE:
            reference = CLOCK_UNDER_MAXIMUM * record.maximum_clock
    elif loaded.cap >= THROTTLED_SHARE and loaded.peers is not None:
        reference = loaded.peers if loaded.clock < CAPPED_CLOCK * loaded.peers else None
    else:
        reference = None
    return None if not reference else max(1.0 - loaded.clock / reference, 0.0)


def _gpus_at_least(minute: NodeMinute, least: float) -> set[str]:
    snapshots = minute.snapshots
    counts = np.count_nonzero(~np.isnan(snapshots.gpu_utilization), axis=0)
    chosen = np.flatnonzero(means_of(np.nansum(snapshots.gpu_utilization, axis=0), counts) >= least)
    return {snapshots.gpu_names[index] for index in chosen.tolist()}


def _note_faults(record: GpuRecord, gpu: str, samples: DeviceSamples, at: float) -> None:
    lost = samples.of(names.LOST).get(gpu)
    if lost is not None:
        record.lost_at = _since(lost, record.lost_at)
    if (errors := samples.of(names.ECC_UNCORRECTED).get(gpu)) is not None:
        _note_errors(record, errors, at)
    if (failed := samples.of(names.REMAPPING_FAILED).get(gpu)) is not None:
        record.failed_rows_at = _since(failed, record.failed_rows_at)
    unanswered = samples.of(names.UNANSWERED).get(gpu)
    record.unanswered_at = None if unanswered is None else _since(unanswered, record.unanswered_at)
    record.unanswered = 0 if record.unanswered_at is None else record.unanswered + 1
    _note_xids(record, gpu, samples, at)


def _since(mark: DeviceSeries, known: float | None) -> float | None:
    """Return since when a mark is set, epoch seconds; None where it is not set at the end of the minute."""
    if mark.last < 1.0:
        return None
    if known is not None:
        return known
    unset = np.flatnonzero(mark.values < 1.0)
    return float(mark.times[unset[-1] + 1 if unset.size else 0])


def _note_errors(record: GpuRecord, errors: DeviceSeries, at: float) -> None:
    """Count uncorrectable errors since the first reading; a smaller count is of a driver that was reloaded."""
    before = errors.first if record.uncorrected is None else record.uncorrected
    if errors.last < before:
        record.new_errors, before = None, errors.last
    if (added := round(errors.last - before)) > 0:
        record.new_errors = _seen_again(record.new_errors, added, at)
    record.uncorrected = errors.last


def _note_xids(record: GpuRecord, gpu: str, samples: DeviceSamples, at: float) -> None:
    """Take in codes; the newest code is 0 again once the collector has restarted, and what was before is over.

    Without counts a code is one of the job where it changed in it.
    """
    newest = samples.of(names.XID).get(gpu)
    if newest is not None and newest.last == 0.0:
        record.xids, record.counted_xids, record.xid, record.xid_before = {}, {}, 0, None
        return
    counted = {code: series[gpu].last for code, series in samples.xids.items() if gpu in series}
    for code, count in sorted(counted.items()):
        if (added := round(count - record.counted_xids.get(code, 0.0))) > 0:
            _note_xid(record, code, added, at)
        if code in record.xids:
            record.counted_xids[code] = count
    if newest is None:
        return
    if not counted:
        _note_changes(record, map(round, newest.values.tolist()), at)
        return
    record.xid = round(newest.last)
    if record.xid not in record.xids:
        _note_xid(record, record.xid, 1, at)


def _note_changes(record: GpuRecord, codes: Iterable[int], at: float) -> None:
    for code in codes:
        if record.xid is None:
            record.xid_before = code or None
        elif code and code != record.xid:
            _note_xid(record, code, 1, at)
        record.xid = code


def _note_xid(record: GpuRecord, code: int, added: int, at: float) -> None:
    """Add to a code's count; where there is no room, one of a program makes room for one of hardware."""
    if code not in record.xids and len(record.xids) >= MOST_XIDS:
        others = [each for each in record.xids if each not in XID_FAULTS]
        if code not in XID_FAULTS or not others:
            return
        del record.xids[others[0]]
    record.xids[code] = _seen_again(record.xids.get(code), added, at)


def _seen_again(was: Seen | None, added: int, at: float) -> Seen:
    return Seen(added, at, at) if was is None else Seen(was.count + added, was.first_at, at)


def _share(samples: DeviceSamples, gpu: str, bits: int) -> float:
    """Return in which share of the readings one of the reasons was set; 0 without a reading."""
    series = samples.of(names.THROTTLE_REASONS).get(gpu)
    if series is None:
        return 0.0
    return float(((series.values.astype("int64") & bits) != 0).mean())


def _median_of(values: list[float]) -> float | None:
    return median(values) if len(values) >= 2 else None
