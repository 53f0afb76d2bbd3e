"""The GPU's time by family, phase and module, and the share of its arithmetic that a step uses."""

import json
from typing import Any

import pytest

from tests.support.kernel_traces import (
    BF16_GEMM,
    NCCL,
    PINNED,
    STREAM,
    TraceWriter,
    judged,
    real_names,
    real_profile,
)
from trainguard.kernels.document import RankProfile
from trainguard.kernels.rollups.rollup import with_model_flops

ADAM = "void multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"
PEAK = 312.0
SIDE = 1024
PRODUCT = 2 * SIDE**3
ENGINE = "autograd::engine::evaluate_function: AddmmBackward0"


class Training(TraceWriter):
    """A step of training: two products forward, four backward on another thread, a collective, an optimizer."""

    def called(
        self, operator: str, kernel: str, at: float, *, thread: int = 1, shapes: Any = None, **said: Any
    ) -> None:
        """Add an operator, the call within it, and its kernel of 100 us."""
        self.launched += 1
        args = {"External id": self.launched, "Input Dims": shapes or [], "Input type": ["c10::BFloat16"] * 2}
        args["Concrete Inputs"] = ["", ""]
        self.event("cpu_op", operator, at, 10, tid=thread, args=args)
        ids = {"correlation": self.launched, "External id": self.launched}
        self.event("cuda_runtime", "cudaLaunchKernel", at + 2, 5, tid=thread, args=ids)
        self.event("kernel", kernel, at + 10, 100, args=ids | {"device": 0, "stream": STREAM})


def trained(*, module: bool = True, mark: str = "", shaped: bool = True, checkpointed: bool = False) -> RankProfile:
    made = Training()
    product: dict[str, Any] = {"shapes": [[SIDE, SIDE], [SIDE, SIDE]]} if shaped else {}
    made.step(0, 0, 2_000)
    if module:
        made.event("python_function", "nn.Module: Net_0", 10, 300, args={})
        made.event("python_function", "nn.Module: Linear_1", 150, 100, args={})
        made.event("python_function", "some.py(3): forward", 155, 90, args={})
    made.called("aten::mm", BF16_GEMM, 20, **product)
    made.called("aten::mm", BF16_GEMM, 160, **product)
    if mark:
        made.event("user_annotation", mark, 400, 700)
    made.event("cpu_op", "other" if mark else ENGINE, 400, 700, tid=2, args={})
    for at in (410, 530, 650, 770, *((890,) if checkpointed else ())):
        made.called("aten::mm", BF16_GEMM, at, thread=2, **product)
    made.called("c10d::allreduce_", NCCL, 1_000, thread=2)
    made.event("user_annotation", "Optimizer.step#AdamW.step", 1_200, 200)
    made.called("aten::_fused_adamw_", ADAM, 1_250)
    made.copy(PINNED, 1_600, 50)
    return judged(made.text())


def times(profile: RankProfile) -> dict[tuple[str, str], int]:
    return {(each.family, each.phase): each.total_ns // 1_000 for each in profile.rollup.families}


@pytest.mark.parametrize("mark", ["", "backward", "## backward ##", "backward-compute"])
def test_time_by_family_and_phase(mark: str) -> None:
    assert times(trained(mark=mark)) == {
        ("gemm", "forward"): 200,
        ("gemm", "backward"): 400,
        ("communication", "backward"): 100,
        ("optimizer", "optimizer"): 100,
        ("copy", "forward"): 50,
    }
    (collective,) = (each for each in trained(mark=mark).rollup.families if each.family == "communication")
    assert collective.collective == "all_reduce"


def test_without_a_backward_pass_no_phase_is_known() -> None:
    made = Training()
    made.step(0, 0, 500)
    made.called("aten::mm", BF16_GEMM, 20, shapes=[[SIDE, SIDE], [SIDE, SIDE]])
    profile = judged(made.text())
    assert times(profile) == {("gemm", "unknown"): 100}
    assert profile.rollup.arithmetic is not None
    assert (profile.rollup.arithmetic.model_source, profile.rollup.arithmetic.model_flops) == ("executed", PRODUCT)


def test_time_by_module_is_that_of_the_innermost_one() -> None:
    found = {each.path: (each.count, each.total_ns // 1_000) for each in trained().rollup.modules}
    assert found == {"Net_0": (1, 100), "Net_0/Linear_1": (1, 100)}


def test_without_modules_ranges_count() -> None:
    made = Training()
    made.step(0, 0, 500)
    made.event("user_annotation", "encoder", 10, 60)
    made.event("user_annotation", "block 3", 15, 50)
    made.called("aten::mm", BF16_GEMM, 20)
    assert [(each.path, each.count) for each in judged(made.text()).rollup.modules] == [("encoder/block 3", 1)]
    assert trained(module=False).rollup.modules == []


@pytest.mark.parametrize(("checkpointed", "executed"), [(False, 6), (True, 7)])
def test_recomputation_counts_for_hardware_alone(checkpointed: bool, executed: int) -> None:
    profile = trained(checkpointed=checkpointed)
    used = profile.rollup.arithmetic
    assert used is not None
    assert (used.executed_flops, used.model_flops, used.model_source) == (executed * PRODUCT, 6 * PRODUCT, "forward")
    seconds = profile.window_ns / 1e9
    assert used.hfu == pytest.approx(executed * PRODUCT / (PEAK * 1e12 * seconds), abs=1e-4)
    assert used.mfu == pytest.approx(6 * PRODUCT / (PEAK * 1e12 * seconds), abs=1e-4)
    assert used.covered_share == 1.0
    given = with_model_flops(used, 3 * PRODUCT)
    assert (given.model_source, given.hfu) == ("given", used.hfu)
    assert given.mfu == pytest.approx(used.mfu / 2, abs=1e-4)


def test_without_shapes_or_peaks_nothing_is_claimed() -> None:
    assert trained(shaped=False).rollup.arithmetic is None
    made = Training(gpus=[{"id": 0, "name": "NVIDIA GeForce RTX 4090", "computeMajor": 8, "computeMinor": 9}])
    made.step(0, 0, 500)
    made.called("aten::mm", BF16_GEMM, 20, shapes=[[SIDE, SIDE], [SIDE, SIDE]])
    assert judged(made.text()).rollup.arithmetic is None


@pytest.mark.parametrize("name", real_names())
def test_families_add_up_on_real_traces(name: str) -> None:
    profile = real_profile(name)
    activity = profile.activity
    assert activity is not None
    assert sum(each.total_ns for each in profile.rollup.families) == activity.kernel_ns + activity.memory_ns
    if profile.rollup.arithmetic is not None:
        assert 0 < profile.rollup.arithmetic.mfu <= profile.rollup.arithmetic.hfu < 1


def test_a_damaged_trace_has_no_more_modules_than_ranges() -> None:
    made = Training()
    made.step(0, 0, 500)
    for place in range(200):
        made.event("python_function", f"nn.Module: Deep_{place}", place / 10, 400, args={})
    made.called("aten::mm", BF16_GEMM, 30)
    (module,) = judged(json.dumps(made.document()).encode()).rollup.modules
    assert module.path.count("/") < 100
