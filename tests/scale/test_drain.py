"""The sizing table: what comes at a minute's edge is done before the next one, and where that ends."""

from dataclasses import replace
from pathlib import Path

import pytest

from infra.config import DeploymentConfig
from tests.scale.drain import EVERY, FIRST_ROWS, ITEM_UNITS, PARTITION_UNITS, Edge, drain, edges, period, table
from trainguard.core.job_policy import MOST_NODES_EACH_MINUTE
from trainguard.running_costs.sizing import SIZES, Size, size_for

MINUTE_S = 60.0
PAGE = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text("utf-8")
DEFAULTS = SIZES[0]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.nodes}")
def test_simultaneous_nodes_of_a_row_drain_before_the_next_write(
    size: Size,
) -> None:
    """One job's partition may take longer than a minute, but not until its nodes are due again."""
    next_edge_s = {
        "jobs of 1,000, all due": MINUTE_S,
        "one job, all due": EVERY * MINUTE_S,
        "one job, first minute": EVERY * MINUTE_S,
        "one job, near a threshold": period(size.nodes) * MINUTE_S,
    }
    assert next_edge_s.keys() == edges(size.nodes).keys()
    for name, edge in edges(size.nodes).items():
        assert drain(edge, size).after_s < next_edge_s[name], name


def test_largest_row_does_not_drain_with_half_its_evaluators() -> None:
    largest = SIZES[-1]
    half = replace(largest, evaluator_concurrency=largest.evaluator_concurrency // 2)
    assert drain(edges(largest.nodes)["jobs of 1,000, all due"], half).after_s > MINUTE_S


def test_largest_job_evaluated_each_minute_keeps_up() -> None:
    largest = SIZES[-1]
    assert drain(Edge(jobs=(MOST_NODES_EACH_MINUTE,), minutes=1), largest).after_s < MINUTE_S
    assert drain(Edge(jobs=(MOST_NODES_EACH_MINUTE,), minutes=1, rows=FIRST_ROWS), largest).after_s < MINUTE_S
    broken = drain(Edge(jobs=(largest.nodes,), minutes=1), largest)
    assert broken.after_s > MINUTE_S, "without turns the largest job would fall behind"


def test_defaults_are_the_first_row() -> None:
    assert all(getattr(DeploymentConfig(), name) == value for name, value in DEFAULTS.settings.items())


def test_row_for_a_node_count_is_the_first_that_suffices() -> None:
    found = [size_for(nodes) for nodes in (0, 1_000, 1_001, 10_000)]
    assert [each and each.nodes for each in found] == [1_000, 1_000, 2_000, 10_000]
    assert size_for(10_001) is None


@pytest.mark.parametrize("name", DEFAULTS.settings)
def test_given_the_table_when_nodes_grow_then_no_setting_shrinks(name: str) -> None:
    column = [size.settings[name] for size in SIZES]
    assert column == sorted(column)


def test_reliability_tables_match_product_and_simulation() -> None:
    settings = [f"| {size.nodes:,} | " + " | ".join(map(str, size.settings.values())) + " |" for size in SIZES]
    head = "| nodes that run at once | " + " | ".join(f"`{name}`" for name in DEFAULTS.settings) + " |"
    assert "\n".join([head, "|---|---|---|---|---|", *settings]) in PAGE
    assert "\n".join(table()) in PAGE
    assert f"{int(MINUTE_S * PARTITION_UNITS / ITEM_UNITS):,} nodes" in PAGE
    assert f"takes {ITEM_UNITS}, and of more than {MOST_NODES_EACH_MINUTE:,} nodes" in PAGE.replace("\n", " ")
