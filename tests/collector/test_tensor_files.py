"""Tensors that a training process hands over, read by the engine to the bit; and which steps are saved."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.support.run_folder import steps_of
from trainguard_collector.objects import Handover
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.recorder.tensors.saving import CollectionConfig, SaveConfig, collections_of
from trainguard_collector.recorder.tensors.watch import class_name, clean, module_name, unwrapped
from trainguard_collector.tensor_files import (
    DTYPES,
    Entry,
    Reductions,
    _crc32c,
    encode_step,
    entries_line,
    entry_text,
    step_line,
)

NAMES = st.text(min_size=1, max_size=60).filter(lambda name: not name.startswith("smdebug"))
VALUES = st.sampled_from([np.dtype(name) for name in DTYPES if not name.startswith("complex")]).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(max_dims=4, max_side=5))
)


def handed_over(tensors: dict[str, Any], *, step: int = 7, worker: str = "worker_0") -> tuple[bytes, ...]:
    entries = [Entry(name, DTYPES[each.dtype.name], list(each.shape), each.nbytes) for name, each in tensors.items()]
    line = step_line(step=step, mode="EVAL", mode_step=3, worker=worker, at=1_800_000_000.25)
    return line, entries_line(map(entry_text, entries)), *(each.tobytes() for each in tensors.values())


def written_to(folder: Path, parts: tuple[bytes, ...]) -> Path:
    """Return a run's folder with what the sampler makes of a step."""
    Handover(folder / "objects", 10_000_000).put_tensors("worker_0", parts)
    outgoing = Outgoing(folder / "objects", "run-1", "node-1")
    outgoing.prepare(final=True)
    assert (outgoing.faults, outgoing.streams) == ({}, {"training"})
    Handover(folder / "objects", 10_000).put(
        "debug-output/collections/000000000/worker_0_collections.json", b'{"_meta":{"num_workers":1}}'
    )
    for key, path in outgoing.ready():
        target = folder / key
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
    return folder / "run-1" / "debug-output"


@settings(max_examples=25)
@given(tensors=st.dictionaries(NAMES, VALUES, min_size=1, max_size=6))
def test_engine_reads_the_same_bits_of_any_tensors(
    tensors: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    view = steps_of(written_to(tmp_path_factory.mktemp("run"), handed_over(tensors)), ended=True)[0]
    assert (view.step, view.mode, view.mode_step, view.at) == (7, "EVAL", 3, 1_800_000_000.25)
    assert sorted(view.names) == sorted(tensors)
    for name, expected in tensors.items():
        found = view.value(name)
        assert (found.shape, found.dtype, found.tobytes()) == (expected.shape, expected.dtype, expected.tobytes())


@pytest.mark.parametrize("step", [0, 1, 999, 1_000, 123_456_789])
def test_files_of_any_step_lie_where_the_engine_looks(step: int, tmp_path: Path) -> None:
    run = written_to(tmp_path, handed_over({"losses/loss": np.array([0.5])}, step=step))
    assert [view.step for view in steps_of(run, ended=True)] == [step]


def test_reductions_are_read_once_per_tensor(tmp_path: Path) -> None:
    entries: list[Entry | Reductions] = [Reductions(["a", "é/b"], ["min", "abs_mean"])]
    entries.append(Entry("losses/loss", DTYPES["float64"], [1], 8))
    line = step_line(step=7, mode="TRAIN", mode_step=7, worker="worker_0", at=1_800_000_000.0)
    numbers = struct.pack("<4fd", -1.0, 0.5, -2.0, 0.25, 3.0)
    (step,) = steps_of(written_to(tmp_path, (line, entries_line(map(entry_text, entries)), numbers)), ended=True)
    assert [step.reduction(name, "min") for name in ("a", "é/b")] == [-1.0, -2.0]
    assert [step.reduction(name, "mean", absolute=True) for name in ("a", "é/b")] == [0.5, 0.25]
    assert step.value("losses/loss")[0] == 3.0


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.worker_0.1.tensors"
    path.write_bytes(b"".join(handed_over({"a": np.zeros(100)}))[:-1])
    with pytest.raises(ValueError, match="step 7 has other bytes than its tensors"):
        encode_step(path)
    assert list(tmp_path.iterdir()) == [path]


def test_crc32c_matches_the_published_check_value() -> None:
    assert _crc32c(b"123456789") == 0xE3069283
    assert _crc32c(struct.pack("<Q", 0)) == 0x8C28B28A


@pytest.mark.parametrize(
    ("config", "saved"),
    [
        (SaveConfig(3), [0, 3, 6, 9]),
        (SaveConfig(3, start_step=3, end_step=9), [3, 6]),
        (SaveConfig(5, save_steps=(2, 7)), [0, 2, 5, 7]),
        (SaveConfig(5, save_steps=(9,), end_step=5), [0, 9]),
        (SaveConfig(500), [0]),
    ],
    ids=["interval", "range", "steps", "steps beyond the end", "managed default"],
)
def test_saved_steps_match_the_managed_hook(config: SaveConfig, saved: list[int]) -> None:
    assert [step for step in range(10) if config.saves(step)] == saved


def test_each_mode_has_its_own_parameters() -> None:
    given_parameters = {"include_regex": "logits", "train.save_interval": "2", "save_interval": 5, "eval.end_step": 1}
    mine = next(
        each for each in collections_of([CollectionConfig("mine", given_parameters)], 100) if each.name == "mine"
    )
    assert [step for step in range(11) if mine.saves("TRAIN", step)] == [0, 2, 4, 6, 8, 10]
    assert [step for step in range(11) if mine.saves("EVAL", step)] == [0]
    assert [step for step in range(11) if mine.saves("PREDICT", step)] == [0, 5, 10]
    assert (mine.holds("head.logits_output_0"), mine.holds("head_output_0")) == (True, False)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("weights", {"save_intervall": 5}, "'save_intervall', expected one of"),
        ("weights", {"save_interval": "often"}, "expected whole numbers of steps"),
        ("weights", {"reductions": "mean,median"}, "median"),
        ("weights", {"save_raw_tensor": "maybe"}, "expected True or False"),
        ("mine", {}, "no include_regex"),
    ],
    ids=["name", "interval", "reduction", "flag", "nothing to match"],
)
def test_unusable_parameters_are_named(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        collections_of([CollectionConfig(name, parameters)], 100)


def test_wrapped_models_have_the_names_of_the_model() -> None:
    class ResNet:
        pass

    class DistributedDataParallel:
        module = ResNet()

    class OptimizedModule:
        _orig_mod = DistributedDataParallel()

    class ReLU:
        pass

    model = unwrapped(OptimizedModule())
    assert class_name(model) == "ResNet"
    assert clean("_fsdp_wrapped_module.layer._orig_mod.0.weight") == "layer.0.weight"
    assert module_name("ResNet", "layer1.0.relu", ReLU()) == "layer1.0.relu"
    assert module_name("ResNet", "layer1.0.act", ReLU()) == "layer1.0.act.relu"
    assert module_name("ResNet", "", model) == "ResNet"
