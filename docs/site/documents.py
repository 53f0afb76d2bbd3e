"""The JSON documents of the commands, by the section of the reference that shows their fields."""

import msgspec

from trainguard.cli.commands.alerts.unsent import AlertsDocument
from trainguard.cli.commands.cost.estimates import CostDocument
from trainguard.cli.commands.explain.explanation import Explanation
from trainguard.cli.commands.notifications.bucket import NotificationsDocument
from trainguard.cli.commands.open.link import Link
from trainguard.cli.commands.params.shown import ParametersDocument, RulesDocument
from trainguard.cli.commands.params.validation import ValidationDocument
from trainguard.cli.commands.prices.show import PricesDocument
from trainguard.cli.commands.prices.update import UpdateDocument
from trainguard.cli.commands.status.job_status import JobDocument, TuningDocument
from trainguard.cli.commands.stops.switch import SwitchDocument
from trainguard.cli.services.job_list import ActiveDocument, JobsDocument
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.listing import KernelList
from trainguard.report.verdict.job_verdict_document import JobVerdict

DOCUMENTS: dict[str, dict[str, type[msgspec.Struct]]] = {
    "jobs": {"jobs": JobsDocument},
    "status": {"status": ActiveDocument, "status JOB": JobDocument, "status of a tuning job": TuningDocument},
    "verdict": {"verdict": JobVerdict},
    "explain": {"explain": Explanation},
    "open": {"open": Link},
    "notifications": {"notifications": NotificationsDocument},
    "kernels": {"kernels": KernelProfiles, "kernels --list": KernelList},
    "cost": {"cost": CostDocument},
    "params show": {"params": RulesDocument, "params RULE": ParametersDocument},
    "params validate": {"params validate": ValidationDocument},
    "alerts": {"alerts": AlertsDocument},
    "stops": {"stops": SwitchDocument},
    "prices show": {"prices": PricesDocument},
    "prices update": {"prices update": UpdateDocument},
}
"""By section, the documents by what is typed."""


def field_lines(section: str) -> list[str]:
    """Return a line with the fields of each document of a section."""
    return [
        f"Fields of `{typed} --json`: {', '.join(f'`{name}`' for name in kind.__struct_fields__)}."
        for typed, kind in DOCUMENTS.get(section, {}).items()
    ]
