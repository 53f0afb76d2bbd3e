"""The kernel profiles of a fleet as its page shows them."""

from markupsafe import Markup

from trainguard.report.fleet_document import FleetKernels, FleetReport
from trainguard.report.html.blocks import Block, Cell, Column, Folded, Note, Table
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, count, moment, share

IN_FULL = 25
_LONGEST = 96
_TO_READ = Note(
    "A job's name leads to the page of its newest kernel profile in the console of S3. trainguard kernels --list "
    "searches a bucket, a prefix or a folder."
)
_TO_READ_OF_A_FOLDER = Note("trainguard kernels --list chooses by name, time, status, framework and finding.")


def kernel_profiles_table(report: FleetReport) -> list[Block]:
    """Return the profiles, the newest first; nothing where there is none."""
    of_folder = report.folder is not None
    if not report.kernel_profiles:
        return []
    columns = [
        Column("Profile" if of_folder else "Job"),
        Column("Recorded" if of_folder else "Judged until"),
        Column("Status"),
        Column("Framework"),
        Column("Traces", "number"),
        Column("Severity"),
        Column("Findings"),
        Column("Most to win", "number"),
        *([Column("Page")] if of_folder else []),
    ]
    rows = [_row(each, of_folder=of_folder) for each in report.kernel_profiles]
    blocks: list[Block] = [Table("Kernel profiles, the newest first", columns, rows[:IN_FULL])]
    if len(rows) > IN_FULL:
        more = Table("More kernel profiles", columns, rows[IN_FULL:])
        blocks.append(Folded(f"{count(len(rows) - IN_FULL)} more kernel profiles", (more,)))
    return [*blocks, _TO_READ_OF_A_FOLDER if of_folder else _TO_READ]


def _row(profile: FleetKernels, *, of_folder: bool) -> list[Cell]:
    written = profile.job if profile.place in (None, ".", profile.job) else f"{profile.place}: {profile.job}"
    name: Cell = shown_name(written, _LONGEST)
    if not of_folder and profile.page is not None and profile.page.startswith("https://"):
        name = Markup('<a href="{}" rel="noreferrer">{}</a>').format(profile.page, name)
    status = f"{profile.status}: {profile.why}" if profile.why else profile.status
    return [
        name,
        NOTHING if profile.recorded_at is None else moment(profile.recorded_at),
        shown_name(status, 2 * _LONGEST),
        shown_name(profile.framework or NOTHING, _LONGEST),
        NOTHING if profile.traces is None else count(profile.traces),
        profile.severity or NOTHING,
        ", ".join(shown_name(each) for each in profile.findings) or NOTHING,
        share(profile.gain_share),
        *([shown_name(profile.page or NOTHING, _LONGEST)] if of_folder else []),
    ]
