"""The memory of GPUs on the page: over time by kind, who holds it, how it is divided, what would make it smaller."""

from collections.abc import Sequence
from itertools import islice

from markupsafe import Markup

from trainguard.core.units import counted
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.memory.entries import KINDS, GpuMemory, MemoryHolder
from trainguard.kernels.memory.frames import own_frame
from trainguard.render.blocks import Block, Cell, Facts, Figure, Figures, Key, Note, numeric, table
from trainguard.render.names import shown_name
from trainguard.render.numbers import count, number, share, size
from trainguard.render.plots.charts import Frame, axes, chart, line_through
from trainguard.render.plots.scale import up_from_zero
from trainguard.render.plots.svg import element, title
from trainguard.report.html.kernels.island import rank_name

MOST_SHOWN = 8
MOST_FRAMES = 4
_TONES = ("s1", "s4", "s6", "s2", "s3", "s8")
_RESERVED = "s5"
_NS_PER_MS = 1e6
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
_CHANGES = {"recompute": "Recomputed activations", "half_batch": "Half the batch"}


def memory_blocks(document: KernelProfiles) -> list[Block]:
    """Return what the page shows of the memory of all ranks and snapshots: of eight GPUs, those with most."""
    found = [(rank_name(rank), each) for rank in document.ranks for each in rank.memory]
    found += [(shown_name(snapshot.trace, 60), each) for snapshot in document.snapshots for each in snapshot.memory]
    several = len(found) > 1
    blocks: list[Block] = []
    for where, memory in islice(sorted(found, key=lambda each: -each[1].peak), MOST_SHOWN):
        name = f"{where}, {memory.name}" if several or len(document.snapshots) else memory.name
        blocks += [_figures(name, memory), _facts(memory), *_holders(name, memory)]
    if len(found) > MOST_SHOWN:
        blocks.append(Note(f"{counted(len(found) - MOST_SHOWN, 'GPU')} with less memory are in kernels.json."))
    if document.snapshots_left_out:
        blocks.append(Note(f"{counted(document.snapshots_left_out, 'memory snapshot')} more are left out."))
    return blocks


def _figures(name: str, memory: GpuMemory) -> Figures:
    used = [(kind, tone) for kind, tone in zip(KINDS, _TONES, strict=True) if any(memory.curve.kinds[kind])]
    legend = [Key(f"part {tone}", kind.replace("_", " ")) for kind, tone in used]
    if memory.curve.reserved:
        legend.append(Key(f"line {_RESERVED}", "reserved"))
    caption = f"Allocated memory of {name}" + (
        ", without what was held before the recording" if memory.is_relative else ""
    )
    return Figures([Figure(caption, curve_chart(memory, used), legend)])


def curve_chart(memory: GpuMemory, used: Sequence[tuple[str, str]]) -> Markup:
    """Draw allocated memory by kind, one on the other, and reserved memory as a line."""
    curve = memory.curve
    top = max(*curve.allocated, *curve.reserved, 1)
    unit, scale = next(
        ((unit, scale) for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if top >= scale), ("B", 1)
    )
    divided, across = (_NS_PER_MS, "milliseconds") if memory.clock == "time" else (1.0, "events of the allocator")
    frame = Frame(up_from_zero(max(curve.at_ns[-1] / divided, 1e-3)), up_from_zero(top / scale))
    at = [frame.x(each / divided) for each in curve.at_ns]
    parts = axes(frame, across, unit)
    below = [0] * len(at)
    for kind, tone in used:
        above = [held + more for held, more in zip(below, curve.kinds[kind], strict=True)]
        edge = [*zip(at, above, strict=True), *zip(reversed(at), reversed(below), strict=True)]
        points = " ".join(f"{x:.1f},{frame.y(value / scale):.1f}" for x, value in edge)
        parts.append(element("polygon", title(kind.replace("_", " ")), points=points, class_=f"part {tone}"))
        below = above
    if curve.reserved:
        line = [(x, frame.y(value / scale)) for x, value in zip(at, curve.reserved, strict=True)]
        parts.extend(line_through(line, "reserved", _RESERVED, dots=False))
    return chart(parts, f"Allocated memory over time, at most {size(memory.peak)}")


def _facts(memory: GpuMemory) -> Facts:
    facts: list[tuple[str, Cell]] = [("Most allocated", size(memory.peak))]
    if memory.most_reserved is not None:
        facts.append(("Most reserved", size(memory.most_reserved)))
    if memory.limit:
        facts.append(("Can be reserved", size(memory.limit)))
    if memory.ran_out is not None:
        facts.append(("Failed allocation", size(memory.ran_out.requested)))
    parts = memory.fragments
    if parts is not None:
        free = f"{size(parts.free)}, the largest block {size(parts.largest_free)}"
        facts += [("Free in segments at the end", free), ("Beside blocks in use", size(parts.inactive_split))]
    for each in memory.notable_estimates:
        estimate = f"at most {size(each.saves_at_most)} less, an estimate from {size(each.acts_on)} that it acts on"
        facts.append((_CHANGES[each.change], estimate))
    return Facts(facts)


def _holders(name: str, memory: GpuMemory) -> list[Block]:
    if memory.unknown:
        return [Note(memory.unknown)]
    when = "when an allocation failed" if memory.moment == "failure" else "at the peak"
    left = memory.holders_left_out
    note = f"{counted(left, 'place')} with {size(memory.holders_left_out_bytes)} left out." if left else None
    return [
        table(
            f"Largest holders of {name} {when}",
            memory.holders,
            ("Where", _where),
            ("Kind", lambda each: each.kind.replace("_", " ")),
            (numeric("Size"), lambda each: size(each.bytes)),
            (numeric("Share"), lambda each: share(each.bytes / memory.held) if memory.held else number(None)),
            (numeric("Blocks"), lambda each: count(each.blocks)),
            note=note,
        )
    ]


def _where(holder: MemoryHolder) -> Cell:
    """Return who allocates, and the stack without the folders of installed packages."""
    if not holder.where:
        return "no stack was recorded"
    frames = (each.rpartition("site-packages/")[2] for each in holder.where[:MOST_FRAMES])
    stack = Markup("<br>").join(shown_name(each, 90) for each in frames)
    return Markup('{}<br><small class="note">{}</small>').format(shown_name(own_frame(holder.where), 90), stack)
