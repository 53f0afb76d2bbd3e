"""`trainguard report` on folders: one without a verdict, and such as no training job is called as."""

import json
import shutil
from pathlib import Path

from tests.functional.cli.commands.test_report import folder, here, report, told
from tests.unit.local.places import write

__all__ = ["folder", "here"]


def test_profile_no_rule_can_judge_gives_exit_code_3(here: Path) -> None:
    place = write(here / "profiles")
    for file in place.rglob("*.json"):
        file.write_bytes(b"\x00 no profile")
    result = report(place, "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["evaluated"] is False


def test_reports_are_named_after_their_folders(here: Path, folder: Path) -> None:
    for name in ("my_job", "my.job"):
        place = here / "copies" / name
        place.parent.mkdir(exist_ok=True)
        shutil.copytree(folder, place)
        document = told(place)
        assert (document["job"], document["page"]) == ("my-job", f"{name}-report/report.html")
