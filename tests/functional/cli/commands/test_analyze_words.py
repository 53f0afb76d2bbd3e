"""`trainguard analyze` on what is short or incomplete: the words that it finds for that."""

from pathlib import Path

from tests.functional.cli.commands.test_analyze import analyze
from tests.support.small_job import uploads
from tests.unit.local.places import write


def test_short_job_with_a_gap_warms_up_no_rule_and_counts_gaps(
    tmp_path: Path,
) -> None:
    place = write(tmp_path / "jobs", uploads()[:24])
    minutes = sorted(place.rglob("system/**/*.algo-1.json"))
    assert len(minutes) > 2
    minutes[1].unlink()
    result = analyze(place, "--out", tmp_path / "out")
    assert "TOO_SHORT" in result.stdout
    assert "WARMING_UP" not in result.stdout
    assert "Missing between the first and the last system metrics: 1 minute." in result.stdout
    assert "gaps" not in result.stdout


def test_framework_events_alone_report_missing_system_metrics(
    tmp_path: Path,
) -> None:
    place = write(tmp_path / "jobs")
    for file in place.rglob("system/**/*.json"):
        file.unlink()
    result = analyze(place, "--out", tmp_path / "out")
    assert "wrote no system metrics" in result.stdout
    assert "heard" not in result.stdout
