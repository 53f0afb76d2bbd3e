"""Steps of debug-output: what the hook writes is what rules read."""

import math
from typing import Any

import numpy as np
import pytest

from tests.support.run_folder import MemoryFiles
from tests.support.tensor_files import DTYPES, NOW, HookWriter
from trainguard.core.errors import RunMissingError, TelemetryFormatError, TensorMissingError, TensorTooLargeError
from trainguard.formats.tensors.debug.event_reader import BLOCK_BYTES, VALUE_CAP_BYTES, EventReader
from trainguard.formats.tensors.debug.ledger import StepLedger
from trainguard.formats.tensors.debug.run import DebugStep, complete_steps, find_run
from trainguard.formats.tensors.step_view import Mode


def steps_in(writer: HookWriter) -> tuple[list[DebugStep], MemoryFiles]:
    files = MemoryFiles(writer.files)
    steps = list(complete_steps(files, find_run(files, "run"), StepLedger()))
    files.requests.clear()
    return steps, files


def only(writer: HookWriter) -> DebugStep:
    (step,) = steps_in(writer)[0]
    return step


@pytest.mark.parametrize("true_checksums", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_entries_of_every_type_are_read_as_they_were_saved(dtype: str, true_checksums: bool) -> None:
    saved = (np.arange(-3, 9).reshape(3, 4) % 7).astype(dtype)
    if dtype == "int8":
        saved[0, 0] = -1
    step = only(HookWriter(true_checksums=true_checksums).collections().step(3, {"x": saved}))
    assert step.value("x").dtype == saved.dtype
    assert np.array_equal(step.value("x"), saved)
    assert step.shape("x") == (3, 4)
    assert np.array_equal(np.concatenate(list(step.blocks("x"))), saved.reshape(-1))


def test_a_scalar_has_one_entry_and_text_is_text() -> None:
    step = only(HookWriter().collections().step(0, {"loss": np.float64(0.25), "objective": ["reg:squarederror", "é"]}))
    assert step.value("loss").tolist() == [0.25]
    assert step.value("objective").dtype == object
    assert step.value("objective").tolist() == ["reg:squarederror", "é"]


def test_a_step_says_its_mode_its_number_and_its_time() -> None:
    step = only(HookWriter().collections().step(1_234_567, {"x": 1.0}, mode="EVAL", mode_step=17, at=NOW + 5))
    assert (step.step, step.mode, step.mode_step, step.at) == (1_234_567, Mode.EVAL, 17, NOW + 5)


def test_a_time_that_is_none_gives_way_to_that_of_the_listing() -> None:
    writer = HookWriter().collections().step(0, {"x": 1.0}, at=math.nan)
    run = find_run(MemoryFiles(writer.files), "run")
    assert run.open_step(0, ["worker_0"], listed_at=5.0).at == 5.0
    run = find_run(MemoryFiles(writer.files), "run")
    with pytest.raises(TelemetryFormatError, match="step 0"):
        _ = run.open_step(0, ["worker_0"]).at


def test_sizes_are_those_of_real_jobs() -> None:
    writer = HookWriter().collections().step(0, {"train-rmse": np.float64(1.5)}).step(10, {"train-rmse": np.float64(1)})
    writer.step(20, {"train-rmse": np.float64(1), "validation-rmse": np.float64(2)})
    sizes = [len(content) for name, content in sorted(writer.files.items()) if name.startswith("events/")]
    assert sizes == [104, 107, 224]
    indexes = [len(content) for name, content in sorted(writer.files.items()) if name.startswith("index/")]
    assert indexes == [219, 220, 288]


class TestReductions:
    def test_a_reduction_is_of_its_tensor_and_no_tensor_of_its_own(self) -> None:
        saved = {
            "smdebug/reductions/abs_mean/gradient/fc.weight": np.float32(0.5),
            "smdebug/reductions/min/gradient/fc.weight": np.float32(-1),
        }
        step = only(HookWriter().collections({"gradients": ([], ["^gradient"])}).step(0, saved))
        assert step.names == ["gradient/fc.weight"]
        assert step.members("gradients") == {"gradient/fc.weight"}
        assert step.reduction("gradient/fc.weight", "mean", absolute=True) == 0.5
        assert step.reduction("gradient/fc.weight", "mean") is None
        assert step.reduction("gradient/fc.weight", "min") == -1
        assert not step.has_value("gradient/fc.weight")
        assert step.shape("gradient/fc.weight") is None
        with pytest.raises(TensorMissingError, match="entries were not saved"):
            step.value("gradient/fc.weight")

    def test_the_stripped_name_is_that_of_the_full_tensor(self) -> None:
        saved = {"dense/kernel:0": np.ones(3), "smdebug/reductions/max/dense/kernel": np.float32(1)}
        step = only(HookWriter().collections().step(0, saved))
        assert step.names == ["dense/kernel:0"]
        assert step.reduction("dense/kernel:0", "max") == 1

    def test_stripped_name_is_in_the_collection_of_the_full_name(self) -> None:
        writer = HookWriter().collections({"weights": (["dense/kernel:0"], [])})
        step = only(writer.step(0, {"smdebug/reductions/max/dense/kernel": np.float32(1)}))
        assert step.members("weights") == {"dense/kernel"}

    def test_a_saved_shape_is_known_without_entries(self) -> None:
        saved = {"smdebug/reductions/l2/w": np.float32(2)}
        writer = HookWriter().collections().step(0, saved, shapes={"w": (3, 4), "only_a_shape": (5,)})
        step = only(writer)
        assert step.shape("w") == (3, 4)
        assert step.shape("only_a_shape") == (5,)
        assert step.names == ["w"]


class TestCollections:
    def test_a_member_is_listed_or_matched(self) -> None:
        writer = HookWriter().collections({"losses": ([], ["[Ll]oss_(?!input).*output"]), "mine": (["b"], [])})
        step = only(writer.step(0, {"CrossEntropyLoss_output_0": 1.0, "b": 1.0, "Loss_input_0": 1.0}))
        assert step.members("losses") == {"CrossEntropyLoss_output_0"}
        assert step.members("mine") == {"b"}
        assert step.members("all") == set(step.names)
        assert step.members("unknown") == set()

    def test_a_bad_regular_expression_is_named_and_the_others_work(self) -> None:
        bad = ["(", "(a+)+$", "x" * 1_001, r"(a)\1"]
        writer = HookWriter().collections({"weights": ([], [*bad, "weight"])}).step(0, {"fc.weight": 1.0})
        files = MemoryFiles(writer.files)
        run = find_run(files, "run")
        assert run.open_step(0, ["worker_0"]).members("weights") == {"fc.weight"}
        assert set(run.membership.unusable) == set(bad)


class TestWorkers:
    def test_the_first_worker_in_sorted_order_has_the_value(self) -> None:
        writer = HookWriter(workers=3)
        for worker in ("worker_2", "worker_0", "worker_1"):
            writer.collections(worker=worker).step(0, {"x": float(worker[-1]), worker: 1.0}, worker=worker)
        step = only(writer)
        assert step.value("x").tolist() == [0.0]
        assert step.names == ["worker_0", "worker_1", "worker_2", "x"]
        assert step.workers == ("worker_0", "worker_1", "worker_2")

    def test_names_of_devices_are_workers(self) -> None:
        device = "_job-worker_replica-0_task-0_device-GPU-0"
        step = only(HookWriter().collections(worker=device).step(7, {"x": 1.0}, worker=device))
        assert step.workers == (device,)
        assert step.value("x").tolist() == [1.0]


class TestRequests:
    def test_a_thousand_scalars_take_one_request(self) -> None:
        names = [f"smdebug/reductions/abs_mean/gradient/layer{number}" for number in range(1_000)]
        writer = HookWriter().collections().step(0, {name: np.float32(1) for name in names})
        (step,), files = steps_in(writer)
        assert all(step.reduction(name, "mean", absolute=True) == 1 for name in step.names)
        assert len(files.requests) == 1

    def test_a_tensor_that_no_rule_asks_for_is_not_read(self) -> None:
        large = np.zeros(40_000_000 // 4, np.float32)
        writer = HookWriter().collections().step(0, {"small": 1.0, "large": large, "other": 1.0})
        (step,), files = steps_in(writer)
        assert step.value("other").tolist() == [1.0]
        assert step.at == NOW
        assert sum(length for _, _, length in files.requests) < 3_000_000

    def test_a_value_is_read_once_however_many_rules_ask(self) -> None:
        writer = HookWriter().collections().step(0, {"x": np.arange(500_000, dtype=np.float64)})
        (step,), files = steps_in(writer)
        first = step.value("x")
        asked = len(files.requests)
        assert np.array_equal(np.concatenate(list(step.blocks("x"))), first)
        assert np.array_equal(step.value("x"), first)
        assert len(files.requests) == asked


class TestLargeTensors:
    @pytest.mark.parametrize("true_checksums", [False, True])
    def test_a_tensor_over_the_cap_is_folded_in_blocks(self, true_checksums: bool) -> None:
        entries = np.arange(VALUE_CAP_BYTES // 4 + 3, dtype=np.int32)
        step = only(HookWriter(true_checksums=true_checksums).collections().step(0, {"x": entries}))
        with pytest.raises(TensorTooLargeError, match="67,108,876 bytes"):
            step.value("x")
        assert step.shape("x") == entries.shape
        seen = 0
        for block in step.blocks("x"):
            assert block.nbytes <= BLOCK_BYTES
            assert np.array_equal(block, entries[seen : seen + block.size])
            seen += block.size
        assert seen == entries.size

    def test_a_wrong_checksum_of_a_large_tensor_is_found_at_its_end(self) -> None:
        writer = HookWriter(true_checksums=True).collections().step(0, {"x": np.zeros(20_000_000, np.uint8)})
        name = next(name for name in writer.files if name.startswith("events/"))
        broken = bytearray(writer.files[name])
        broken[10_000_000] ^= 1
        writer.files[name] = bytes(broken)
        with pytest.raises(TelemetryFormatError, match="checksum"):
            list(only(writer).blocks("x"))


def test_a_reduction_is_decoded_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    plain = EventReader.number

    def number(reader: EventReader, place: Any, tensor: str) -> Any:
        decoded.append(tensor)
        return plain(reader, place, tensor)

    monkeypatch.setattr(EventReader, "number", number)
    saved = {"smdebug/reductions/l2/w": np.float32(2.5), "smdebug/reductions/abs_max/w": np.int64(7)}
    step = only(HookWriter().collections().step(0, saved))
    for _ in range(3):
        assert (step.reduction("w", "l2"), step.reduction("w", "max", absolute=True)) == (2.5, 7.0)
    assert sorted(decoded) == sorted(saved)


@pytest.mark.parametrize(
    "entries", [np.array([1, 2], np.float32), ["text"], np.complex64(1j), np.zeros((0,), np.float32)]
)
def test_a_reduction_that_is_no_real_number_is_refused(entries: Any) -> None:
    step = only(HookWriter().collections().step(0, {"smdebug/reductions/l2/w": entries}))
    with pytest.raises(TelemetryFormatError, match="expected one real number"):
        step.reduction("w", "l2")


class TestEarlier:
    def test_earlier_steps_are_of_the_same_mode_and_hold_the_tensor(self) -> None:
        writer = HookWriter().collections()
        for number in range(8):
            mode = "EVAL" if number % 2 else "TRAIN"
            writer.step(number, {"x" if number != 4 else "y": float(number)}, mode=mode, mode_step=number // 2)
        files = MemoryFiles(writer.files)
        found = {
            step.step: [each.step for each in step.earlier("x", 2)]
            for step in complete_steps(files, find_run(files, "run"), StepLedger())
        }
        assert found == {0: [], 1: [], 2: [0], 3: [1], 4: [2, 0], 5: [3, 1], 6: [2, 0], 7: [5, 3]}

    def test_a_tensor_that_is_saved_rarely_is_found_again(self) -> None:
        writer = HookWriter().collections()
        for number in range(401):
            saved = {"loss": 1.0} | ({"weight": 1.0} if number % 100 == 0 else {})
            writer.step(number, saved | ({"gradient": 1.0} if number % 50 == 0 else {}))
        files = MemoryFiles(writer.files)
        steps = [
            [each.step for each in step.earlier("weight", 2)] if "weight" in step.names else []
            for step in complete_steps(files, find_run(files, "run"), StepLedger())
        ]
        assert [steps[number] for number in range(0, 401, 100)] == [[], [0], [100, 0], [200, 100], [300, 200]]

    def test_rare_tensor_is_found_by_one_index_per_tensor_set(self) -> None:
        writer = HookWriter().collections()
        for number in range(201):
            writer.step(number, {"loss": 1.0} | ({"weight": 1.0} if number % 100 == 0 else {}))
        files = MemoryFiles(writer.files)
        run = find_run(files, "run")
        for _ in complete_steps(files, run, StepLedger()):
            pass
        later = find_run(files, "run")
        later.history = run.history
        newest = later.open_step(200, ["worker_0"])
        files.requests.clear()
        assert [each.step for each in newest.earlier("weight", 1)] == [100]
        assert len(files.requests) <= 2

    def test_the_same_step_of_another_run(self) -> None:
        other = find_run(MemoryFiles(HookWriter().collections().step(2, {"w": 5.0}).files), "other")
        files = MemoryFiles(HookWriter().collections().step(2, {"w": 1.0}).step(3, {"w": 1.0}).files)
        run = find_run(files, "run", lambda name: {"other": other}[name])
        here = run.open_step(2, ["worker_0"]).other_run("other")
        assert here is not None
        assert here.value("w").tolist() == [5.0]
        assert run.open_step(3, ["worker_0"]).other_run("other") is None
        with pytest.raises(RunMissingError, match="other runs cannot be read"):
            find_run(files, "run").open_step(2, ["worker_0"]).other_run("other")
