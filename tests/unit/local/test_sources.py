"""Where a profile is found: at a place, directly in it, or below it."""

from pathlib import Path

import pytest

from tests.unit.local.places import write
from trainguard.core.errors import NoProfileError, ProfileSourceError
from trainguard.local.sources import open_folder


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write(tmp_path / "jobs")


@pytest.mark.parametrize("place", ["small-job/profiler-output", "small-job", "."])
def test_profile_is_found_from_its_location_or_above(job: Path, place: str) -> None:
    source = open_folder(str(job.parent / place))
    assert Path(source.place).resolve() == job / "profiler-output"
    assert source.job == "small-job"
    names = list(source.sizes)
    assert names == sorted(names)
    assert "system/training_job_end.ts" in names
    name = next(name for name in names if name.startswith("framework/pevents/"))
    assert source.read(name) == (job / "profiler-output" / name).read_bytes()
    assert source.sizes[name] == len(source.read(name))
    assert source.files.get_range(name, 3, 7) == source.read(name)[3:10]
    with source.files.open_stream(name) as stream:
        assert stream.read(5) + stream.read(1_000_000) == source.read(name)


def test_profile_in_a_folder_of_its_own_name_is_of_that_job(job: Path) -> None:
    (job / "profiler-output").rename(job.parent / "copied")
    (job.parent / "copied" / "job.json").write_text("{}", encoding="utf-8")
    source = open_folder(str(job.parent / "copied"))
    assert (source.job, source.beside("job.json", 10)) == ("copied", b"{}")


def test_results_of_the_managed_service_are_no_profile(job: Path) -> None:
    results = job / "rule-output" / "ProfilerReport-1" / "profiler-output" / "system"
    results.mkdir(parents=True)
    assert Path(open_folder(str(job.parent)).place) == job / "profiler-output"


def test_two_profiles_below_a_folder_are_named_in_the_error(job: Path) -> None:
    (job.parent / "other" / "profiler-output" / "framework").mkdir(parents=True)
    with pytest.raises(ProfileSourceError, match=r"holds 2 profiles \(.*other.*small-job.*name it"):
        open_folder(str(job.parent))


@pytest.mark.parametrize(
    ("place", "said"),
    [("nowhere", "does not exist"), ("file.json", "holds no profile and no run"), ("empty", "holds no profile")],
)
def test_location_without_a_profile_is_an_error_with_its_reason(tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "empty" / "profiler-output").mkdir(parents=True)
    (tmp_path / "file.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ProfileSourceError, match=said) as caught:
        open_folder(str(tmp_path / place))
    assert isinstance(caught.value, NoProfileError) == (place != "nowhere")


@pytest.mark.parametrize("name", ["job.tgz", "job.tar.gz", "job.ZIP"])
def test_archive_is_an_error_that_says_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ProfileSourceError, match="is an archive: unpack it"):
        open_folder(str(tmp_path / name))


@pytest.mark.parametrize("held", ["report.json", "profiler-reports/BatchSize.json", "rule-output/x/report.json"])
def test_folder_of_reports_is_an_error_for_not_being_a_profile(tmp_path: Path, held: str) -> None:
    (tmp_path / held).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / held).write_text("{}", encoding="utf-8")
    with pytest.raises(ProfileSourceError, match="holds reports on a job and not its profile"):
        open_folder(str(tmp_path))
