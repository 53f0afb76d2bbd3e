"""Pages of kernel profiles for tests: of real traces, of written ones, and of 100,000 events."""

from collections.abc import Sequence

from tests.support.kernel_traces import BF16_GEMM, COMMUNICATION_STREAM, NCCL, PINNED, TraceWriter, read, real_trace
from trainguard.kernels.columns import Trace
from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.kernels.join import across_ranks
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.timeline.build import Timeline, timeline_of
from trainguard.report.html.kernels.page import render_kernels

MARKUP = "</script></table><script>window.__hacked=1</script><img src=x onerror=window.__hacked=1>"
HOSTILE = (MARKUP, "\u202egnp.exe", '"; alert(1); "', "<!--<script>", "{{ 7 * 7 }}", "x" * 5_000, "a\x00b\x1b[2J")


def page_of(traces: Sequence[Trace], *, source: str = "traces", unread: dict[str, str] | None = None) -> str:
    """Return the page of traces, each with its timeline."""
    return page_of_drawn([(rank_profile(each), timeline_of(each)) for each in traces], source=source, unread=unread)


def page_of_drawn(
    drawn: Sequence[tuple[RankProfile, Timeline]], *, source: str = "traces", unread: dict[str, str] | None = None
) -> str:
    ranks = [rank for rank, _ in drawn]
    document = KernelProfiles(source=source, ranks=ranks, unread=unread or {}, across=across_ranks(ranks))
    return render_kernels(document, drawn)


def real_page(*names: str) -> str:
    return page_of([real_trace(name) for name in names])


def busy_trace(steps: int = 49, kernels: int = 509) -> Trace:
    """A trace on six streams and two threads: of each kernel its call, an operator and that one's parent."""
    made = TraceWriter()
    for step in range(steps):
        begin = 100_000.0 * step
        made.step(step, begin, 99_000)
        for place in range(kernels):
            at = begin + 198.0 * place
            thread = 1 + place % 2
            made.event("cpu_op", f"aten::layer_{place % 40}", at, 190, tid=thread)
            made.event("cpu_op", f"aten::op_{place % 97}", at + 1, 150, tid=thread)
            name = f"kernel_{place % 61}" if place % 9 else NCCL
            made.kernel(name, at + 60 + 17 * (place % 5), 60 + 90 * (place % 3), launch=at + 5, stream=place % 6)
            made.events[-2]["tid"] = thread
    return read(made.text(), "host-1_77.1700000000000.pt.trace.json")


def hostile_trace() -> Trace:
    """Names that would act on a page that writes them as they are."""
    made = TraceWriter()
    for step in range(4):
        made.step(step, 1_000.0 * step, 1_000)
        for place, name in enumerate(HOSTILE):
            made.event("user_annotation", name, 1_000.0 * step + 100 * place, 90, tid=MARKUP)
            made.kernel(name, 1_000.0 * step + 100 * place, 50, launch=1_000.0 * step + 100 * place)
        made.copy(MARKUP, 1_000.0 * step + 900, 50)
    return read(made.text(), f"{MARKUP}_1.2.pt.trace.json")


def small_trace() -> Trace:
    """Two steps with a gemm, a collective and a copy each: times and places are easy to say."""
    made = TraceWriter()
    for step in range(2):
        begin = 1_000.0 * step
        made.step(step, begin, 1_000)
        made.event("cpu_op", "aten::mm", begin + 100, 200)
        made.kernel(BF16_GEMM, begin + 400, 300, launch=begin + 150, call=10)
        made.kernel(NCCL, begin + 700, 100, launch=begin + 320, stream=COMMUNICATION_STREAM)
        made.copy(PINNED, begin + 850, 50)
    return read(made.text(), "trace.json")
