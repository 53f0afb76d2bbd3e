"""``fleet.html`` of a deployment or of a folder."""

from collections.abc import Mapping

from trainguard.core.finding import Severity
from trainguard.core.records import Status
from trainguard.render.blocks import plot_column
from trainguard.render.plots.scale import PERCENT
from trainguard.report.fleet.document import FleetReport
from trainguard.report.fleet.fleet import OVER
from trainguard.report.html.page import read_asset, render_page

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
    return render_page(
        "fleet.html.j2",
        styles=_STYLES,
        script=read_asset("fleet/filter.js") if report.kernel_profiles else "",
        report=report,
        percent_scale=PERCENT,
        share_column=lambda title: plot_column(title, PERCENT, " %"),
        shades=_SHADES,
        quiet=_QUIET,
    )
