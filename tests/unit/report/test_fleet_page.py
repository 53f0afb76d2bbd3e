"""The fleet's page: its parts, its links, jobs with a kernel profile; hostile texts are shown and not run."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import msgspec

from tests.support.fleets import HOSTILE, fleet_of, found, hostile, job, quiet, with_rows
from tests.support.html_pages import Page
from trainguard.core.finding import Fact, Finding
from trainguard.core.records import RuleRow, Status
from trainguard.kernels.listing import KernelList, ListedProfile
from trainguard.report.fleet.document import encode_fleet
from trainguard.report.fleet.facts import with_kernels
from trainguard.report.html.fleet import render_fleet

PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas" / "fleet-1.json"


def test_fleet_page_has_all_parts_and_working_links() -> None:
    of, waits = job(), job("waits")
    report = fleet_of(with_rows(of, found(of, action="Training job stopped: allowed.")), with_rows(waits, judged=0))
    page = Page(render_fleet(report))
    titles = [attributes["id"] for attributes in page.of("section")]
    assert titles == ["verdict", "jobs", "heat", "rules", "trend", "instances", "stops", "unjudged", "notes"]
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] or "" for attributes in page.of("a")]
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert {link.split("/")[2] for link in links if not link.startswith("#")} == {"eu-west-1.console.aws.amazon.com"}
    assert (
        "1 of 1 evaluated jobs have findings. They wasted at least 60 % of the instance hours, USD 22.95 of USD"
        in page.text
    )
    assert page.of("script") == []


def test_given_nothing_when_rendered_then_no_section_is_empty() -> None:
    page = Page(render_fleet(fleet_of()))
    assert [attributes["id"] for attributes in page.of("section")] == ["verdict", "notes"]
    assert "none of 0 jobs was evaluated" in page.text


def test_hostile_texts_on_the_fleet_page_are_not_executed() -> None:
    page = Page(render_fleet(fleet_of(hostile(HOSTILE))))
    assert page.of("script") == page.of("img") == []
    assert all(not name.startswith("on") and name != "style" for _, attributes in page.tags for name in attributes)
    assert all((each["href"] or "").startswith(("#", "https://")) for each in page.of("a"))
    assert "hacked()" in page.text
    assert "49" not in page.text.replace("&#49;", "")
    assert "\u202e" not in page.text


def test_console_link_of_another_kind_is_dropped() -> None:
    report = fleet_of(with_rows(job(), found(job())))
    bad = msgspec.structs.replace(report.jobs[0], console="javascript:hacked()")
    page = Page(render_fleet(msgspec.structs.replace(report, jobs=[bad])))
    assert all((each["href"] or "").startswith("#") for each in page.of("a"))


def test_kernel_rules_list_profiled_jobs_with_their_fires() -> None:
    slow, fine, other, waits, short = job("slow"), job("fine"), job("other"), job("waits"), job("short")
    few = RuleRow(short.job, Finding("kernels/GpuGap", None, "Two steps."), Status.WARMING_UP, data_points=4)
    unheard = RuleRow(waits.job, Finding("kernels/GpuGap", None, "No trace."), Status.WAITING_FOR_DATA)
    fired = found(slow, "kernels/LaunchBound")
    told: dict[str, str | float] = {"framework": "jax", "traces": 8, "gain_share": 0.25}
    finding = replace(fired.finding, facts=tuple(Fact(name=name, value=value) for name, value in told.items()))
    report = fleet_of(
        with_rows(slow, replace(fired, finding=finding), quiet(slow, "kernels/GpuGap")),
        with_rows(fine, quiet(fine, "kernels/GpuGap")),
        with_rows(other, found(other)),
        with_rows(waits, unheard),
        with_rows(short, few),
    )
    assert {each.job: (each.findings, each.status) for each in report.kernel_profiles} == {
        "slow": (["LaunchBound"], slow.status.value),
        "fine": ([], fine.status.value),
        "short": ([], short.status.value),
    }
    made = {each.job: (each.framework, each.traces, each.gain_share) for each in report.kernel_profiles}
    assert made == {"slow": ("jax", 8, 0.25), "fine": (None, None, None), "short": (None, None, None)}
    page = Page(render_fleet(report))
    assert "kernels" in [attributes["id"] for attributes in page.of("section")]
    assert "Kernel profiles, the newest first" in page.text
    assert len(page.of("script")) == 1
    assert [attributes.get("type") for attributes in page.of("input")] == ["search"]
    links = [attributes["href"] or "" for attributes in page.of("a") if "kernels.html" in (attributes["href"] or "")]
    assert len(links) == 3
    assert links[0].startswith("https://")


def test_kernel_profiles_of_a_folder_are_folded_and_escaped() -> None:
    profile = ListedProfile(name=HOSTILE, place=HOSTILE, status="unreadable", why=HOSTILE, findings=[HOSTILE])
    found_there = KernelList(source="here", found=300, profiles=[profile] * 300, left_out=7)
    report = with_kernels(msgspec.structs.replace(fleet_of(), folder="here"), found_there)
    assert len(report.kernel_profiles) == 250
    assert "57 older kernel profiles are not listed." in report.notes
    page = Page(render_fleet(report))
    assert (len(page.of("script")), page.of("img")) == (1, [])
    assert "225 more kernel profiles" in page.text
    jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_bytes())).validate(json.loads(encode_fleet(report)))
