"""The JSON documents of the commands, by the section of the reference that shows their fields."""

from collections.abc import Mapping

from trainguard.gate.document import GateVerdict
from trainguard.hangs.verdict import HangVerdict
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.listing import KernelList
from trainguard.planning.document import PlanDocument
from trainguard.report.agents.verdict import AgentVerdict
from trainguard.report.verdict_document import JobVerdict
from trainguard.stragglers.verdict import StragglerVerdict

DOCUMENTS: Mapping[str, Mapping[str, str]] = {
    "analyze": {
        "analyze": "schema_version source out reading defaults healthy evaluated fired verdict summary cost rules "
        "unread files notes"
    },
    "report": {
        "report": "schema_version job source made_from scope final healthy evaluated verdict fired comparison page "
        "files notes",
        "report --in-stack": "schema_version job execution report_uri console",
    },
    "replay": {
        "replay": "schema_version job replay_of healthy verdict fired changed changes expires_at report_uri page files "
        "notes"
    },
    "doctor": {
        "doctor": "schema_version stack region account job bucket examined healthy counts findings",
    },
    "jobs": {"jobs": "schema_version generated_at jobs more"},
    "status": {
        "status": "schema_version generated_at jobs brakes",
        "status JOB": "schema_version generated_at job status secondary_status instance_type instance_count tuning_job "
        "platform queue owners "
        "active started_at ended_at evaluated_through verdict fired rules nodes evaluated evaluated_because braked "
        "outlook setting_faults rules_elsewhere rule_places staged muted brakes",
        "status of a tuning job": "schema_version generated_at tuning_job seen finished with_findings more jobs brakes",
    },
    "verdict": {
        "verdict": " ".join(JobVerdict.__struct_fields__),
        "verdict --for agent": " ".join(AgentVerdict.__struct_fields__),
    },
    "explain": {
        "explain": "schema_version generated_at job rule node status worst data_points affected_percent "
        "wasted_percent violations times_fired evaluated_through fired_at parameters earlier_episodes "
        "stop reason measured threshold severity advice episodes finding_kind facts cost_lost patience "
        "meaning fires_when comparison episodes_ended done evaluated evaluated_because is_staged "
        "is_muted setting_faults rules_elsewhere outlook nodes"
    },
    "mcp": {"mcp": "schema_version skill"},
    "open": {"open": "schema_version job url uri expires_at credentials_end_it"},
    "notifications": {"notifications": "schema_version stack region bucket queue changed written before after command"},
    "kernels": {
        "kernels": " ".join(KernelProfiles.__struct_fields__),
        "kernels --list": " ".join(KernelList.__struct_fields__),
    },
    "gate": {"gate": " ".join(GateVerdict.__struct_fields__)},
    "hang": {"hang": " ".join(HangVerdict.__struct_fields__)},
    "stragglers": {"stragglers": " ".join(StragglerVerdict.__struct_fields__)},
    "plan": {"plan": " ".join(PlanDocument.__struct_fields__)},
    "cost": {
        "cost": "schema_version workload currency origin hour job month without_profile idle_month "
        "idle_month_beyond_free fire profile lines unit_prices"
    },
    "params show": {
        "params": "schema_version job rules groups faults",
        "params RULE": "schema_version rule family looks_at fires_when fault runs job parameters",
    },
    "params validate": {"params validate": "schema_version valid settings faults elsewhere"},
    "alerts": {"alerts": "schema_version generated_at since alerts"},
    "stops": {
        "stops": "schema_version stack region account in_force deployed override parameter override_parameter",
        "stops status": "brakes",
    },
    "brake": {"brake": "schema_version generated_at stack region account parameter brakes faults"},
    "prices show": {"prices": "schema_version region currency instances"},
    "prices update": {
        "prices update": "schema_version file region currency date priced compared_with changed new kept unused"
    },
}
"""By section, the fields of each document by what is typed."""


def field_names(section: str, typed: str) -> list[str]:
    """Return the fields of a document."""
    return DOCUMENTS[section][typed].split()


def field_lines(section: str) -> list[str]:
    """Return a line with the fields of each document of a section."""
    return [
        f"Fields of `{typed} --json`: {', '.join(f'`{name}`' for name in names.split())}."
        for typed, names in DOCUMENTS.get(section, {}).items()
    ]
