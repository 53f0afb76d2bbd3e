"""``fleet.html`` of a deployment or of a folder."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from trainguard.core.finding import Severity
from trainguard.core.records import Status
from trainguard.render.blocks import Cell, heat, plot_column
from trainguard.render.numbers import NOTHING, share
from trainguard.render.plots.scale import PERCENT, up_from_zero
from trainguard.render.plots.strips import bar
from trainguard.report.fleet.document import FleetReport
from trainguard.report.fleet.fleet import OVER
from trainguard.report.html.page import read_asset, render_page

OWNER_WEEKS = 4
_SHADES: Mapping[str, int] = {Severity.CRITICAL: 4, Severity.HIGH: 3, Severity.MEDIUM: 2, Severity.LOW: 1, OVER: 1}
_QUIET: Mapping[str, str] = {
    Status.OK: "ok",
    Status.ERROR: "error",
    Status.WARMING_UP: "no verdict",
    Status.WAITING_FOR_DATA: "no data",
    Status.NOT_APPLICABLE: "n/a",
    Status.DISABLED: "off",
}
_STYLES = "section tbody th { min-width: 8.5em; }"


def render_fleet(report: FleetReport) -> str:
    """Return the page of a fleet as one file; the report's texts may hold anything, they are shown, not run."""
    by_kind: dict[str, list[Any]] = {}
    for owner in report.owners:
        by_kind.setdefault(owner.kind, []).append(owner)
    return render_page(
        "fleet.html.j2",
        styles=_STYLES,
        script=read_asset("fleet/filter.js") if report.kernel_profiles else "",
        report=report,
        by_kind=by_kind,
        mondays=[week.name for week in report.weeks[-OWNER_WEEKS:]][::-1],
        share_column=lambda title: plot_column(title, PERCENT, " %"),
        share_bar=_share_bar,
        plot_column=plot_column,
        up_from_zero=up_from_zero,
        bar=bar,
        heat_cell=_heat_cell,
        link=_link,
        page_link=_page_link,
    )


def _link(name: Cell, place: str | None) -> Cell:
    if place is None or not place.startswith("https://"):
        return name
    return Markup('<a href="{}" rel="noreferrer">{}</a>').format(place, name)


def _page_link(name: Cell, page: str | None) -> Cell:
    """Link to a page below that of the fleet."""
    return name if page is None else Markup('<a href="{}">{}</a>').format(quote(page), name)


def _heat_cell(word: str) -> Cell:
    return heat(_SHADES[word], word) if word in _SHADES else _QUIET.get(word, word) or NOTHING


def _share_bar(value: float | None, of: str = "of the instance hours", tone: str = "plain") -> Markup:
    return bar(None if value is None else 100.0 * value, PERCENT, alt=f"{share(value)} {of}", tone=tone)
