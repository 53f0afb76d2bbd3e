"""Keys of training health: what is the family's, and what is refused."""

import pytest

from tests.families.training.runs import FAMILIES
from trainguard.core.errors import UnreadableKeyError
from trainguard.core.layout import EndKey, ProfileRoot
from trainguard.engine.training.stream import ScalarKey, match_key
from trainguard.formats.tensors.debug.keys import TensorKey


def test_index_file_belongs_to_the_stream_of_all_workers() -> None:
    key = FAMILIES.parse_key("a/b/job/debug-output/index/000000001/000000001500_worker_3.json")
    assert isinstance(key, TensorKey)
    assert (key.root, key.node, key.stream) == (ProfileRoot("a/b/", "job"), "all-workers", "training")
    assert (key.file.kind, key.file.step, key.file.worker) == ("index", 1500, "worker_3")


def test_end_mark_belongs_to_the_debug_output_stream() -> None:
    found = FAMILIES.parse_key("job/debug-output/training_job_end.ts")
    assert found == EndKey(ProfileRoot("", "job"), "training", "all-workers")


@pytest.mark.parametrize(
    ("key", "job", "kind", "name"),
    [
        ("job/tensorboard-output/tfevents.1", "job", "events", "tensorboard-output/tfevents.1"),
        ("p/job/trainer-output/a/x.tfevents.1", "job", "events", "trainer-output/a/x.tfevents.1"),
        ("job/checkpoints/checkpoint-500/trainer_state.json", "job", "trainer_state", "checkpoints/trainer_state.json"),
        ("job/checkpoints/checkpoint-9/trainer_state.json", "job", "trainer_state", "checkpoints/trainer_state.json"),
        ("job/trainer-output/csv/version_0/metrics.csv", "job", "csv", "trainer-output/csv/version_0/metrics.csv"),
        ("job/tensorboard-output/checkpoints/metrics.csv", "job", "csv", "tensorboard-output/checkpoints/metrics.csv"),
    ],
)  # fmt: skip
def test_first_known_folder_of_a_scalar_file_names_the_job(key: str, job: str, kind: str, name: str) -> None:
    found = match_key(key)
    assert isinstance(found, ScalarKey)
    assert (found.root.job, found.file.kind, found.name) == (job, kind, name)


@pytest.mark.parametrize(
    "key",
    [
        "job/debug-output/index/000000009/000000001500_worker_3.json",
        "job/debug-output/index/000000001/000000001500.json",
        "job/debug-output/index/000000001/-00000001500_worker_3.json",
        "job/debug-output/index/../000000001/000000001500_worker_3.json",
        "job/rule-output/x/job/debug-output/index/000000001/000000001500_worker_3.json",
        "job/rule-output/tensorboard-output/events.out.tfevents.1.host",
        "tensorboard-output/events.out.tfevents.1.host",
        "job/metrics.csv",
        "job/models/trainer_state.json",
        "-job/tensorboard-output/events.out.tfevents.1.host",
        "job/tensorboard-output/" + "a/" * 13 + "metrics.csv",
        "job/tensorboard-output/" + "a" * 1_024 + "/metrics.csv",
        "job/tensorboard-output/a\nb/metrics.csv",
    ],
)
def test_foreign_or_hostile_key_is_refused_with_a_reason(key: str) -> None:
    with pytest.raises(UnreadableKeyError):
        FAMILIES.parse_key(key)
