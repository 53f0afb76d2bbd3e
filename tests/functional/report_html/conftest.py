import pytest

from tests.unit.report_html.rich_job import judge
from trainguard.report.document import Report


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of a job with something to show for every rule; it takes the engine a second or two."""
    return judge(tmp_path_factory.mktemp("rich"))
