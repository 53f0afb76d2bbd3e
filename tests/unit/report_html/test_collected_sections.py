"""Sections of rules over the collector's series: what their details hold stands in tables."""

import pytest

from tests.unit.report_html.reports import fired
from tests.unit.report_html.test_sections import rendered, section
from trainguard.render.details import Details
from trainguard.rules.gpu_health.rule import GpuHealth, HealthDetails
from trainguard.rules.hung_job.rule import HungDetails, HungNode
from trainguard.rules.straggler.rule import RankPace, StragglerDetails

HEALTH = HealthDetails({"gpu3": GpuHealth(["xid"], {"79": 2}, 1, 1_200.0, 4, 10, 16.0)})
HUNG = HungDetails({"algo-1": HungNode(["gpu0"], ["gpu1"], {"gpu0": 110.0}, {"gpu0": 400.0}, 240.0)}, {"rank1": "41"})
SLOW = StragglerDetails({"algo-1-rank2": RankPace(620_000.0, 320_000.0, 1e6, 4_000, True)})


@pytest.mark.parametrize(
    ("rule", "details", "expected"),
    [
        ("GPUHealth", {"algo-1": HEALTH.plain()}, ["algo-1 / gpu3", "79 (2)", "4 of 10"]),
        ("HungJob", {"algo-1": HUNG.plain()}, ["gpu0", "110", "240 s", "rank1"]),
        ("Straggler", SLOW.plain(), ["algo-1-rank2", "620 ms", "320 ms", "slow"]),
    ],
    ids=["health", "hung", "straggler"],
)
def test_given_details_when_rendered_then_the_table_has_them(
    rule: str, details: dict[str, Details], expected: list[str]
) -> None:
    text = section(rendered(fired(rule, details)), rule)
    assert [word for word in expected if word not in text] == []
