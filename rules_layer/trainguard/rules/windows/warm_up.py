"""Words of rules over samples without a verdict; a rule's own text is decorated by `or_undecided`."""

from collections.abc import Mapping
from functools import wraps

from trainguard.core.finding import Fact, Progress
from trainguard.core.records import Status
from trainguard.render.details import NodeDetails
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import FactSheet, JudgedKind, RuleResult, Text, Words
from trainguard.state.sample_window import WORK_S

# Where patience that was given in points lasts longer, seconds are the better choice, and the reason says so.
LONG_PATIENCE_S = 3_600.0

SERIES_IN_WORDS: Mapping[str, str] = {
    "CPUUtilization": "CPU utilization",
    "I/OWaitPercentage": "I/O wait",
    "GPUMemoryUtilization": "GPU memory activity",
}


class WarmUpKind(JudgedKind):
    """Why a rule over samples has no verdict on a node."""

    WAITING = "waiting", Status.WAITING_FOR_DATA
    WARMING_UP = "warming_up", Status.WARMING_UP
    TOO_SHORT = "too_short", Status.WARMING_UP
    TOO_FEW_SAMPLES = "too_few_samples", Status.WARMING_UP
    START_UP = "start_up", Status.WARMING_UP
    NEVER_ACTIVE = "never_active", Status.WARMING_UP
    NOT_SEEN_ACTIVE = "not_seen_active", Status.WARMING_UP
    NEVER_COLLECTED = "never_collected", Status.NOT_APPLICABLE
    NO_UTILIZATION = "no_utilization", Status.NOT_APPLICABLE
    PARTITIONED = "partitioned", Status.NOT_APPLICABLE


def waiting(view: NodeView) -> RuleResult:
    none = (view.fact("samples", 0),)
    return RuleResult.told(undecided_text, WarmUpKind.WAITING, none)


def warming_up(
    points: int, needed: int, view: NodeView, details: NodeDetails, progress: Progress | None = None
) -> RuleResult:
    """Return the judgement of a node with ``points`` of the ``needed`` ones."""
    if view.first_active_at is None:
        kind, facts = never_active(view)
    else:
        kind = WarmUpKind.TOO_FEW_SAMPLES
        facts = (
            view.work_fact("points", points, threshold=float(needed)),
            view.fact("sampling_interval", view.interval_s, unit="s"),
            view.fact("patience", needed * view.interval_s, unit="s"),
            *stream_end(view),
        )
        if points <= needed and view.closed:
            kind = WarmUpKind.TOO_SHORT
        elif points <= needed:
            kind, left_s = WarmUpKind.WARMING_UP, (needed + 1 - points) * view.interval_s
            facts = (*facts, view.fact("time_left", left_s, unit="s"))
    return RuleResult.told(
        undecided_text,
        kind,
        facts,
        data_points=points,
        progress=progress or Progress(seen=points, needed=needed),
        details=details,
    )


def never_collected(series: str, view: NodeView) -> RuleResult:
    facts = (view.fact("samples", 0, series=series),)
    kind = WarmUpKind.NEVER_COLLECTED
    return RuleResult.told(undecided_text, kind, facts, data_points=view.kept_total)


def lacks_utilization(view: NodeView, details: "NodeDetails | None" = None) -> RuleResult:
    """Say that a node has no samples of GPUs: it has none, only partitioned ones, or nobody measured them."""
    kind = WarmUpKind.PARTITIONED if view.mig_names else WarmUpKind.NO_UTILIZATION
    facts = (
        view.fact("gpus", 0, series="GPUUtilization"),
        view.fact("instances", len(view.mig_names)),
    )
    return RuleResult.told(undecided_text, kind, facts, details=details or {})


def never_active(view: NodeView) -> tuple[WarmUpKind, tuple[Fact, ...]]:
    """Return why there is no verdict on a node that had not worked before its watermark or its stream's end."""
    ended = stream_end(view)
    if view.ever_active.any():
        return WarmUpKind.START_UP, (view.fact("work_needed", WORK_S, unit="s"), *ended)
    kind = WarmUpKind.NOT_SEEN_ACTIVE if _lacks_utilization(view) else WarmUpKind.NEVER_ACTIVE
    since_first_s = max((view.watermark_s or 0.0) - (view.first_sample_at or 0.0), 0.0)
    return kind, (view.fact("idle_time", since_first_s, unit="s", series="GPUUtilization"), *ended)


def or_undecided(text: Text) -> Text:
    """Return a rule's text that also says why there is no verdict, of a judgement of one of the shared kinds."""

    @wraps(text)
    def words(sheet: FactSheet) -> Words:
        return undecided_text(sheet) if sheet.kind in _KINDS else text(sheet)

    return words


def undecided_text(sheet: FactSheet) -> Words:
    kind, ended = WarmUpKind(sheet.kind), sheet.get("stream_end") is not None
    if kind in {WarmUpKind.WARMING_UP, WarmUpKind.TOO_SHORT}:
        has = sheet.say("{points.value:,} of the {points.limit:point} of patience")
        of_patience = has if sheet["points"].threshold else "no point that can be judged"
        long = kind is WarmUpKind.WARMING_UP and sheet.number("patience") > LONG_PATIENCE_S
        return Words(sheet.say(_REASONS[kind], of_patience=of_patience, more=sheet.say(_IN_SECONDS) if long else ""))
    if kind is WarmUpKind.NEVER_ACTIVE and ended:
        return Words(sheet.say("no GPU of {node} was active in the {idle_time} until its stream ended."))
    series = sheet.facts[0].series or ""
    until = "until its stream ended" if ended else "yet"
    return Words(sheet.say(_REASONS[kind], until=until, series=SERIES_IN_WORDS.get(series, series)))


def stream_end(view: NodeView) -> tuple[Fact, ...]:
    if not view.closed or view.watermark_s is None:
        return ()
    return (Fact(name="stream_end", value=view.watermark_s, unit="time", node=view.node),)


def _lacks_utilization(view: NodeView) -> bool:
    if view.watermark_s is None or view.first_sample_at is None:
        return False
    return view.idle_run_s <= 0.0 and view.watermark_s - view.first_sample_at >= view.interval_s


_IN_SECONDS = (
    " ({points.limit:point} are {patience} at a sampling interval of {sampling_interval.value:g} s: better give "
    "patience_s, and window_s where the rule has one, in seconds)"
)
_REASONS: Mapping[WarmUpKind, str] = {
    WarmUpKind.WAITING: "no system metrics of {node} were written.",
    WarmUpKind.WARMING_UP: "{node} has {of_patience}, about {time_left} left{more}.",
    WarmUpKind.TOO_SHORT: "{node} has {of_patience}; its stream has ended, too early for a verdict.",
    WarmUpKind.TOO_FEW_SAMPLES: "too few of the newest points of {node} have GPU samples.",
    WarmUpKind.START_UP: (
        "{node} has not finished its start-up: its GPUs were not active for {work_needed.value:g} s in all {until}."
    ),
    WarmUpKind.NEVER_ACTIVE: "no GPU of {node} has been active yet, {idle_time} after its first sample.",
    WarmUpKind.NOT_SEEN_ACTIVE: (
        "no GPU of {node} was seen active, and its newest points have no sample of GPU utilization."
    ),
    WarmUpKind.NEVER_COLLECTED: "no {series} of {node} was collected, which the rule needs.",
    WarmUpKind.NO_UTILIZATION: "no utilization of GPUs was recorded on {node}: it has none, or they were not measured.",
    WarmUpKind.PARTITIONED: "the GPUs of {node} are partitioned (MIG), so utilization is not measured.",
}
_KINDS = frozenset(WarmUpKind)
