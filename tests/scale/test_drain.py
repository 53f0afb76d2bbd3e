"""The sizing table: what comes at a minute's edge is done before the next one, and where that ends."""

from dataclasses import replace
from pathlib import Path

import pytest

from infra.config import DeploymentConfig
from tests.scale.drain import EVERY, FIRST_ROWS, ITEM_UNITS, PARTITION_UNITS, Edge, drain, edges, period, table
from trainguard.job_policy import MOST_NODES_EACH_MINUTE
from trainguard.running_costs.sizing import SIZES, Size, size_for

MINUTE_S = 60.0
PAGE = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text("utf-8")
DEFAULTS = SIZES[0]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.nodes}")
def test_given_a_row_of_the_table_when_its_nodes_write_at_once_then_all_is_evaluated_before_they_do_again(
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


def test_given_a_row_when_it_has_half_of_its_evaluators_then_the_largest_does_not_drain() -> None:
    largest = SIZES[-1]
    half = replace(largest, evaluator_concurrency=largest.evaluator_concurrency // 2)
    assert drain(edges(largest.nodes)["jobs of 1,000, all due"], half).after_s > MINUTE_S


def test_given_the_largest_job_that_is_evaluated_each_minute_when_it_is_simulated_then_it_keeps_up() -> None:
    largest = SIZES[-1]
    assert drain(Edge(jobs=(MOST_NODES_EACH_MINUTE,), minutes=1), largest).after_s < MINUTE_S
    assert drain(Edge(jobs=(MOST_NODES_EACH_MINUTE,), minutes=1, rows=FIRST_ROWS), largest).after_s < MINUTE_S
    broken = drain(Edge(jobs=(largest.nodes,), minutes=1), largest)
    assert broken.after_s > MINUTE_S, "without turns the largest job would fall behind"


def test_given_the_defaults_when_compared_then_they_are_the_first_row() -> None:
    assert all(getattr(DeploymentConfig(), name) == value for name, value in DEFAULTS.settings.items())


def test_given_a_number_of_nodes_when_its_row_is_looked_up_then_it_is_the_first_that_is_enough() -> None:
    found = [size_for(nodes) for nodes in (0, 1_000, 1_001, 10_000)]
    assert [each and each.nodes for each in found] == [1_000, 1_000, 2_000, 10_000]
    assert size_for(10_001) is None


@pytest.mark.parametrize("name", DEFAULTS.settings)
def test_given_the_table_when_nodes_grow_then_no_setting_shrinks(name: str) -> None:
    column = [size.settings[name] for size in SIZES]
    assert column == sorted(column)


def test_given_the_page_on_reliability_when_its_tables_are_read_then_they_are_those_of_product_and_simulation() -> None:
    settings = [f"| {size.nodes:,} | " + " | ".join(map(str, size.settings.values())) + " |" for size in SIZES]
    head = "| nodes that run at once | " + " | ".join(f"`{name}`" for name in DEFAULTS.settings) + " |"
    assert "\n".join([head, "|---|---|---|---|---|", *settings]) in PAGE
    assert "\n".join(table()) in PAGE
    assert f"{int(MINUTE_S * PARTITION_UNITS / ITEM_UNITS):,} nodes" in PAGE
    assert f"takes {ITEM_UNITS}, and of more than {MOST_NODES_EACH_MINUTE:,} nodes" in PAGE.replace("\n", " ")
