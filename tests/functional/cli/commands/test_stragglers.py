"""`trainguard stragglers`: the cause and its cost, for a person and as JSON."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.stragglers.simulated import Job, Planted
from trainguard.cli.main import app


def stragglers(*words: object) -> Result:
    return CliRunner().invoke(app, ["stragglers", *(str(word) for word in words)])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "operations.csv"
    file.write_bytes(Job(copies=3, stages=2, batches=4, planted=(Planted("rank", 2.0, 4),)).csv())
    return file


def test_json_names_rank_slowdown_and_cost(table: Path) -> None:
    answer = stragglers(table, "--json", "--instance-type", "ml.p4d.24xlarge", "--nodes", 2, "--job-hours", 100)
    document = json.loads(answer.stdout)
    assert answer.exit_code == 0
    assert document["worst"]["rank"] == 4
    assert document["slowdown"] > 1.2
    first = document["causes"][0]
    assert (first["kind"], first["ranks"]) == ("ranks", [4])
    assert document["price"]["lost"] == pytest.approx(document["price"]["spent"] * first["saves"])


def test_a_person_reads_who_is_slow_and_what_it_costs(table: Path) -> None:
    answer = stragglers(table, "--instance-type", "ml.p4d.24xlarge")
    assert answer.exit_code == 0
    assert "Rank 4 takes 1.99 times" in answer.stdout
    assert "an hour." in answer.stdout


def test_a_cause_fails_on_fire_alone(table: Path) -> None:
    assert stragglers(table, "--fail-on-fire").exit_code == 1
    table.write_bytes(Job(copies=3, stages=2, batches=4).csv())
    answer = stragglers(table, "--fail-on-fire")
    assert answer.exit_code == 0
    assert "Nothing is slow" in answer.stdout


def test_faults_of_a_table_are_notes(table: Path) -> None:
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:30], *lines[31:], "short,row"]))
    (table.parent / "notes.csv").write_text("a,b\n1,2\n")
    answer = stragglers(table.parent)
    assert answer.exit_code == 0
    assert "rows of other columns (1)" in answer.stderr
    assert "notes.csv was not read: lacks columns" in answer.stderr


def test_tables_of_two_jobs_are_not_mixed(table: Path) -> None:
    (table.parent / "other.csv").write_bytes(Job(copies=2, stages=2, batches=2).csv())
    answer = stragglers(table.parent)
    assert answer.exit_code == 2
    assert "holds several jobs: operations.csv and other.csv both have rank 0 in step 10" in answer.stderr


def test_place_without_a_whole_step_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "operations.csv").write_text("rank,step,op,start,duration\n0,1,forward-compute,0,nan\n")
    answer = stragglers(tmp_path)
    assert answer.exit_code == 2
    assert "can be replayed: rows without a number (1)" in answer.stderr
    assert stragglers(tmp_path / "nowhere").exit_code == 2
