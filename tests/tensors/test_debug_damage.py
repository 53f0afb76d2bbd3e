"""Files of debug-output that are cut, hostile or foreign: one error, no large allocation, never a wrong value."""

import json
import struct
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.support.fuzzing import damaged, search, short_and_long
from tests.support.run_folder import MemoryFiles
from tests.support.tensor_files import (
    HOOK_FOOTER,
    NOW,
    HookWriter,
    event,
    field_of,
    frame,
    hook_event,
    masked_crc,
    number_of,
    varint,
)
from tests.support.tensor_trials import trials
from trainguard.core.errors import IndexNotReadyError, RunMissingError, TelemetryFormatError, UnreadableKeyError
from trainguard.core.layout import EndKey, ProfileRoot
from trainguard.formats.tensors.debug.json_files import decode_collections, decode_index
from trainguard.formats.tensors.debug.keys import (
    STREAM,
    RunFile,
    TensorKey,
    collections_name,
    index_name,
    match_key,
    match_name,
    parse_reduction,
)
from trainguard.formats.tensors.debug.run import DebugStep, find_run
from trainguard.formats.tensors.name_patterns import COSTLIEST_SEARCH, NamePatternError, name_pattern

WORKER = "worker_0"


def events_name(step: int, worker: str) -> str:
    return f"events/{step:012d}/{step:012d}_{worker}.tfevents"


EVENTS, INDEX = events_name(0, WORKER), index_name(0, WORKER)


def opened(files: dict[str, bytes]) -> DebugStep:
    return find_run(MemoryFiles(files), "run").open_step(0, [WORKER])


def with_frame(content: bytes, *, tensor: str = "x", start: int = 0, length: int | None = None) -> dict[str, bytes]:
    """Return a run of one step whose index says that a tensor lies in ``content``."""
    files = HookWriter().collections().step(0, {tensor: 1.0}).files
    index = json.loads(files[INDEX])
    index["tensor_payload"][0].update(start_idx=start, length=len(content) if length is None else length)
    return {**files, INDEX: json.dumps(index).encode(), EVENTS: content}


class TestKeys:
    ROOT = ProfileRoot("team/", "my-job")

    @pytest.mark.parametrize("worker", ["worker_0", "algo-1", "_job-worker_replica-0_task-0_device-GPU-0"])
    def test_a_base_name_is_split_at_its_first_underscore(self, worker: str) -> None:
        for kind, name in (
            ("index", index_name(1_234_567, worker)),
            ("events", events_name(1_234_567, worker)),
        ):
            assert match_key(f"team/my-job/debug-output/{name}") == TensorKey(
                self.ROOT,
                RunFile(kind, worker, 1_234_567),  # type: ignore[arg-type]
            )
        found = match_key(f"team/my-job/debug-output/{collections_name(worker)}")
        assert found == TensorKey(self.ROOT, RunFile("collections", worker))

    def test_marks(self) -> None:
        for name in ("training_job_end.ts", "END_OF_JOB.ts"):
            assert match_key(f"team/my-job/debug-output/{name}") == EndKey(self.ROOT, STREAM)
        claim = match_key("team/my-job/debug-output/claim.smd")
        assert claim == TensorKey(self.ROOT, RunFile("claim"))

    @pytest.mark.parametrize(
        "key",
        [
            "my-job/profiler-output/system/training_job_end.ts",
            "my-job/debug-output/index/000000000/5_worker_0.json",
            "my-job/debug-output/index/000000000/000000000005_wor/ker.json",
            "my-job/debug-output/index/000000000/000000000005_worker_0.json.bak",
            "my-job/debug-output/collections/000000000/collections.json",
            "debug-output/training_job_end.ts",
            "my-job/debug-output/x" * 80,
        ],
    )
    def test_other_keys(self, key: str) -> None:
        assert match_key(key) is None

    def test_a_step_in_the_folder_of_another_is_foreign(self) -> None:
        with pytest.raises(UnreadableKeyError, match="expected 000000001"):
            match_name("index/000000000/000000001000_worker_0.json")


class TestFrames:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (frame(hook_event("y", 1.0, step=0, mode_step=0)), "holds tensor 'y', its index says 'x'"),
            (frame(hook_event("x", 1.0, step=0, mode_step=0), footer=7), "does not agree with its checksum"),
            (b"\x00" * 60, "does not agree with its checksum"),
            (frame(b"\xff" * 40), "holds no event"),
            (frame(b"\x09" + struct.pack("<d", NOW) + field_of(5, b"")), "holds 0 tensors"),
            (frame(event(field_of(1, field_of(1, b"\xff\xfe")), step=0)), "is no UTF-8 text"),
        ],
    )
    def test_a_frame_that_is_no_tensor(self, content: bytes, reason: str) -> None:
        with pytest.raises(TelemetryFormatError, match=reason):
            opened(with_frame(content)).value("x")

    @pytest.mark.parametrize(
        ("tensor", "reason"),
        [
            (number_of(1, 14) + field_of(4, bytes(4)), "dtype 14, expected one of"),
            (number_of(1, 1) + field_of(4, bytes(8)), "has 8 bytes"),
            (number_of(1, 1) + field_of(2, field_of(2, number_of(1, 2**40))) + field_of(4, bytes(4)), "has 4 bytes"),
            (
                number_of(1, 1) + field_of(2, field_of(2, number_of(1, -1)) * 2) + field_of(4, bytes(4)),
                "expected sizes",
            ),
            (
                number_of(1, 1) + field_of(2, field_of(2, number_of(1, 1)) * 99) + field_of(4, bytes(4)),
                "expected sizes",
            ),
            (number_of(1, 0) + field_of(2, field_of(2, number_of(1, 5))) + field_of(8, b"a"), "has 1 bytes"),
        ],
    )
    def test_a_tensor_whose_shape_and_bytes_disagree(self, tensor: bytes, reason: str) -> None:
        content = frame(event(field_of(1, field_of(1, b"x") + field_of(8, tensor)), step=0))
        with pytest.raises(TelemetryFormatError, match=reason):
            opened(with_frame(content)).value("x")

    def test_an_empty_tensor_has_no_entries(self) -> None:
        tensor = number_of(1, 1) + field_of(2, field_of(2, number_of(1, 0))) + field_of(4, b"")
        step = opened(with_frame(frame(event(field_of(1, field_of(1, b"x") + field_of(8, tensor)), step=0))))
        assert step.value("x").shape == (0,)
        assert list(step.blocks("x")) == []

    @pytest.mark.parametrize("length", [200, 300_000, 2_000_000, 80_000_000, 2**50])
    def test_an_index_that_promises_more_than_there_is(self, length: int) -> None:
        header = struct.pack("<Q", length - 16)
        for check in (bytes(4), struct.pack("<I", masked_crc(header))):
            each = header + check + bytes(50)
            step = opened(with_frame(each, length=length))
            tracemalloc.start()
            for read in (step.value, step.shape, lambda name, step=step: list(step.blocks(name))):
                with pytest.raises(TelemetryFormatError):
                    read("x")
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 2_000_000

    def test_an_index_that_takes_two_frames_for_one(self) -> None:
        one = frame(hook_event("x", 1.0, step=0, mode_step=0), footer=HOOK_FOOTER)
        with pytest.raises(TelemetryFormatError, match="a frame says"):
            opened(with_frame(one + one)).value("x")

    def test_a_large_frame_that_is_cut_takes_no_memory(self) -> None:
        whole = frame(hook_event("x", np.zeros(10_000_000, np.float32), step=0, mode_step=0), footer=HOOK_FOOTER)
        step = opened(with_frame(whole[:500_000], length=len(whole)))
        tracemalloc.start()
        with pytest.raises(TelemetryFormatError, match="a frame is cut"):
            step.value("x")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2_000_000

    def test_a_large_frame_with_another_footer(self) -> None:
        content = frame(hook_event("x", np.zeros(400_000, np.float32), step=0, mode_step=0), footer=7)
        with pytest.raises(TelemetryFormatError, match="does not agree with its checksum"):
            opened(with_frame(content)).value("x")

    def test_a_large_frame_whose_messages_do_not_nest(self) -> None:
        entries = np.zeros(400_000, np.float32)
        good = hook_event("x", entries, step=0, mode_step=0)
        size, other = b"\x22" + varint(entries.nbytes), b"\x22" + varint(entries.nbytes + 10_000)
        assert good.count(size) == 1
        broken = good.replace(size, other)
        assert opened(with_frame(frame(good, footer=HOOK_FOOTER))).value("x").shape == (400_000,)
        with pytest.raises(TelemetryFormatError, match="a field ends at byte"):
            opened(with_frame(frame(broken, footer=HOOK_FOOTER))).value("x")

    @short_and_long
    def test_any_damage_gives_one_error_or_the_bytes_that_are_there(self, examples: int) -> None:
        whole = HookWriter(true_checksums=True).collections().step(0, {"x": np.arange(6.0), "y": ["text"]}).files

        def check(content: bytes, proper: bool) -> None:
            step = opened({**whole, EVENTS: content})
            for name in ("x", "y"):
                with suppress(TelemetryFormatError):
                    assert step.value(name).tolist() in ([*range(6)], ["text"])
            hooks = with_frame(frame(content, footer=HOOK_FOOTER) if proper else content)
            with suppress(TelemetryFormatError):
                assert opened(hooks).value("x").size <= len(content)

        search(check, examples, content=damaged(whole[EVENTS]), proper=st.booleans())

    @short_and_long
    def test_any_payload_of_the_hook_gives_one_error(self, examples: int) -> None:
        good = hook_event("x", np.arange(4.0), step=3, mode_step=3)

        def check(payload: bytes) -> None:
            step = opened(with_frame(frame(payload, footer=HOOK_FOOTER)))
            for read in (step.value, step.shape, lambda name: list(step.blocks(name)), lambda _: step.at):
                with suppress(TelemetryFormatError):
                    read("x")

        search(check, examples, payload=damaged(good))


class TestIndex:
    GOOD = HookWriter().collections().step(0, {"x": 1.0}, shapes={"x": (1,)}).files[INDEX]

    @pytest.mark.parametrize(
        "body", [b"", b"{", GOOD[:-1], b"{}", b'{"meta": {}}', b'{"meta": {"mode": "TRAIN", "mode_step": 1}}', b"null"]
    )
    def test_what_is_still_being_written_is_not_ready(self, body: bytes) -> None:
        with pytest.raises(IndexNotReadyError):
            decode_index(0, WORKER, body)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"meta": {"mode": "SLEEP", "mode_step": 0}}, "Invalid enum value 'SLEEP'"),
            ({"meta": {"mode": "TRAIN", "mode_step": -1}}, "mode_step"),
            ({"meta": {"mode": "TRAIN", "mode_step": 0}}, "event_file_name is None"),
            ({"meta": {"mode": "TRAIN", "mode_step": 0, "event_file_name": "../../other"}}, "event_file_name is"),
            ({"meta": {"mode": "TRAIN", "mode_step": 0, "event_file_name": events_name(1, "w")}}, "event_file_name is"),
            ({"tensor_payload": [{"tensorname": "x", "start_idx": -1, "length": 99}]}, "start_idx"),
            ({"tensor_payload": [{"tensorname": "x", "start_idx": 0, "length": 2**60}]}, "length"),
            ({"tensor_payload": [{"tensorname": "x" * 2_000, "start_idx": 0, "length": 99}]}, "tensorname"),
            ({"shape_payload": [{"tensorname": "x", "shape": [1] * 99}]}, "shape"),
        ],
    )
    def test_a_field_that_is_wrong_is_named(self, change: dict[str, Any], reason: str) -> None:
        body = json.dumps({**json.loads(self.GOOD), **change}).encode()
        with pytest.raises(TelemetryFormatError, match=reason) as raised:
            decode_index(0, WORKER, body)
        assert not isinstance(raised.value, IndexNotReadyError)
        assert raised.value.place == INDEX

    def test_an_index_of_shapes_alone_needs_no_event_file(self) -> None:
        body = b'{"meta": {"mode": "TRAIN", "mode_step": 4}, "shape_payload": [{"tensorname": "x", "shape": [2]}]}'
        assert decode_index(0, WORKER, body).shapes == {"x": (2,)}

    @short_and_long
    def test_any_damage_gives_one_error(self, examples: int) -> None:
        def check(body: bytes) -> None:
            with suppress(TelemetryFormatError):
                decode_index(0, WORKER, body)

        search(check, examples, body=st.one_of(damaged(self.GOOD), st.binary()))


class TestCollections:
    GOOD = HookWriter().collections({"losses": (["a"], ["^b"])}).files[collections_name(WORKER)]

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"[" * 100_000,
            b'{"collections": {}}',
            b'{"_meta": {"num_workers": 0}}',
            b'{"_meta": {"num_workers": 99999999}}',
            b'{"_meta": {"num_workers": 1}, "collections": {"a": {"include_regex": [1]}}}',
            json.dumps({"_meta": {"num_workers": 1}, "collections": {str(n): {} for n in range(1_001)}}).encode(),
            json.dumps({"_meta": {"num_workers": 1}, "collections": {"a": {"include_regex": ["x"] * 2_001}}}).encode(),
        ],
    )
    def test_what_cannot_be_read_is_named(self, body: bytes) -> None:
        with pytest.raises(TelemetryFormatError) as raised:
            decode_collections(WORKER, body)
        assert raised.value.place == collections_name(WORKER)
        with pytest.raises(RunMissingError):
            find_run(MemoryFiles({collections_name(WORKER): body}), "run")

    def test_a_run_without_collections_is_none(self) -> None:
        with pytest.raises(RunMissingError, match="holds no collections file"):
            find_run(MemoryFiles({}), "run")

    @short_and_long
    def test_any_damage_gives_one_error(self, examples: int) -> None:
        def check(body: bytes) -> None:
            with suppress(TelemetryFormatError):
                decode_collections(WORKER, body)

        search(check, examples, body=st.one_of(damaged(self.GOOD), st.binary()))


class TestNamePatterns:
    @pytest.mark.parametrize(
        "text",
        [
            r"(a+)+$",
            r"(a*)*b",
            r"(a|aa)+$",
            r"((a?)b?)*$",
            r"(?:a{1,9}){1,9}x",
            r"(a)\1",
            r"(?P<n>a)(?P=n)",
            r"(?x)a b",
        ],
    )
    def test_a_pattern_that_may_take_for_ever_is_refused(self, text: str) -> None:
        with pytest.raises(NamePatternError):
            name_pattern(text)

    @pytest.mark.parametrize(
        "text",
        [
            r"^(?!gradient).*weight",
            r"[Ll]oss_(?!input).*output",
            r".*loss._(?!input).*output",
            r"^[a-zA-z]+-[a-zA-z0-9]+$",
            r"^[a-zA-z]+-.+(?<!(auc|map))$",
            r".*tanh_input|.*sigmoid_input",
            r"layer[0-9]{1,3}\.(?:conv|fc)\.[^]x\]]+",
            r"(?i:relu)_output",
            r"x{,3}y{2}z{",
        ],
    )
    def test_patterns_that_people_use_are_taken(self, text: str) -> None:
        pattern = name_pattern(text)
        for name in ("fc.0.weight", "Loss_0_output", "train-rmse", "layer1.0.relu_output_0"):
            assert pattern.matches(name) == (pattern.compiled.search(name) is not None)

    def test_a_search_that_could_take_too_long_is_refused(self) -> None:
        pattern = name_pattern(".*a.*b.*c.*d")
        assert not pattern.matches("a" * 20)
        with pytest.raises(NamePatternError, match="could take too long"):
            pattern.matches("a" * 1_024)

    @short_and_long
    def test_no_search_that_is_taken_takes_long(self, examples: int) -> None:
        pieces = st.sampled_from(["a", "b", ".", "*", "+", "?", "(", ")", "|", "{1,5}", "[ab]", "(?:", "^", "$", "\\w"])

        def check(parts: list[str], name: str) -> None:
            with suppress(NamePatternError):
                pattern = name_pattern("".join(parts))
                if pattern.cost(name) <= COSTLIEST_SEARCH // 20:
                    start = time.process_time()
                    pattern.matches(name)
                    assert time.process_time() - start < 2.0

        search(check, examples, parts=st.lists(pieces, max_size=12), name=st.text("ab", max_size=60))


def test_names_of_reductions() -> None:
    assert parse_reduction("smdebug/reductions/abs_l2/a/b:0") == ("a/b:0", "l2", True)
    assert parse_reduction("smdebug/reductions/variance/x") == ("x", "variance", False)
    for name in ("smdebug/reductions/median/x", "smdebug/reductions/min/", "x", "smdebug/reductions/abs_x"):
        assert parse_reduction(name) is None


def test_a_reduction_that_is_no_number() -> None:
    saved = {"smdebug/reductions/min/x": np.zeros(3), "smdebug/reductions/max/x": ["a"]}
    step = opened(HookWriter().collections().step(0, saved).files)
    for kind in ("min", "max"):
        with pytest.raises(TelemetryFormatError, match="expected one real number"):
            step.reduction("x", kind)


def test_damage_of_a_trial_is_named_and_the_rest_reads() -> None:
    files = dict(trials()["healthy"])
    name = events_name(0, WORKER)
    files[name] = files[name][: len(files[name]) // 2]
    step = opened(files)
    readable = 0
    for each in step.names:
        with suppress(TelemetryFormatError):
            readable += step.value(each).size > 0
    assert 0 < readable < len(step.names)
