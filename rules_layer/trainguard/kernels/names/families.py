"""A kernel's family by its name: what it computes, and whether on tensor cores.

Names are those of PyTorch, cuBLAS, cuDNN, CUTLASS, Triton, Inductor, FlashAttention, Transformer Engine, vLLM, SGLang,
DeepGEMM, Tensile (hipBLASLt), Composable Kernel, AITER, AOTriton, MIOpen and XLA, as their public sources give them.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache


class RowFamily(StrEnum):
    """What a row of the GPU does; ``normalisation`` has softmax, ``optimizer`` all operations over lists of tensors."""

    GEMM = "gemm"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    NORMALISATION = "normalisation"
    REDUCTION = "reduction"
    ELEMENTWISE = "elementwise"
    EMBEDDING = "embedding"
    OPTIMIZER = "optimizer"
    COMMUNICATION = "communication"
    COPY = "copy"
    OTHER = "other"


# Families that tensor cores can compute.
MATRIX = frozenset({RowFamily.GEMM, RowFamily.ATTENTION, RowFamily.CONVOLUTION})


class Core(StrEnum):
    """On what kernels of a sort compute: tensor cores always, in the types that these have, or never."""

    ALWAYS = "always"
    BY_PRECISION = "by precision"
    NEVER = "never"


def any_of(*words: str) -> re.Pattern[str]:
    return re.compile("|".join(words), re.IGNORECASE)


# Inductor's pointwise, reducing and persistent kernels are named by what they fuse, also by a product's neighbours.
_INDUCTOR = r"triton_(?:poi|red|per|for)_"

# What a product's name may say beside what is fused with it.
_PRODUCT = r"(?:gemm|conv(?!ert)|matmul|moe_kernel|flash|fmha|attention|sdpa)"

_NORMALISATION = r"(?:batch|layer|group|rms|instance|l2|add|qk)_?norm(?!al_)|softmax|rowwise_?moments|gammabeta"

_SORTS: tuple[tuple[RowFamily, Core, re.Pattern[str]], ...] = (
    # The first line that fits the function's own name is taken, else the first that fits the whole name.
    (
        RowFamily.COPY, Core.NEVER,
        any_of(
            "reshape_and_cache", "concat_and_cache", "kv_?cache.*(?:copy|store|write|set)", "catarray",
            "nchwtonhwc", "nhwctonchw", rf"^(?!.*(?:{_PRODUCT}|cast)).*transpose",
            r"(?:^|_)(?:gather|scatter|index|take|roll|flip)_", "index_(?:copy|put|fill)", "indexfunc",
            "copy_kernel", "batched_?copy", "set_mla_kv", "permut", "subtensoropwithcast",
            "wrapped_(?:copy|transpose|slice|concatenate)",
        ),
    ),
    (
        RowFamily.OPTIMIZER, Core.NEVER,
        any_of(
            "multi_tensor", "multitensor", r"(?<![a-z])(?:fused_?)?adam(?:w|a|ax)?(?![a-z])",
            "fused_?(?:sgd|adagrad)", "fusedadam", "(?<![a-z])lamb_", "triton_for_fused",
            "adam_(?:kernel|update|capturable)", "rmsprop", "8bit_?(?:blockwise|optimizer)",
            "optimizer(?:static)?[12]state", "lion_update", "newton_?schulz",
        ),
    ),
    (
        RowFamily.NORMALISATION, Core.NEVER,
        any_of(
            rf"{_INDUCTOR}.*(?:{_NORMALISATION}|var_mean|mean_rsqrt|rsqrt)",
            rf"^(?!triton_|.*{_PRODUCT}).*(?:{_NORMALISATION})", r"(?<![a-z])(?:bn|ln)_(?:fw|bw|stat)",
            "cucompute(?:part)?grad", "cudnn.*::bn_", "norm_fwd", "norm_bwd", "spatial_?bn", "norm_kernel",
        ),
    ),
    (RowFamily.EMBEDDING, Core.NEVER, any_of("embedding", "index_?select", "_tbe_", "embbag")),
    (
        RowFamily.REDUCTION, Core.NEVER,
        any_of(
            "triton_(?:red|per)_", "splitk_?reduce", "reduce_fusion", "splitkred", "reduce_?splitk", r"Cijk_\w*PostGSU",
        ),
    ),
    (RowFamily.ELEMENTWISE, Core.NEVER, any_of("triton_poi_")),
    # Parts of attention that work on single elements: they sum, convert or join what the products give.
    (
        RowFamily.ATTENTION, Core.NEVER,
        any_of(
            "combine_?kernel", "fwdcombine", "dot_do_o", "ograddoto", "convertqgrad",
            "convert_d[qkv]+", "bwd_?(?:pre|post)_?process",
            "compute_delta", "_bwd_preprocess", r"paged_attention_v\d", "paged_attention_ll4mi_reduce",
            "merge_attn_states", "masked_multihead_attention", "reduce_kernel_mla", "selective_scan",
            "cascade_merge", r"(?<![a-z])(?:rotary|rope)(?![a-z])",
        ),
    ),
    (
        RowFamily.ELEMENTWISE, Core.NEVER,
        any_of(
            "vectorized_elementwise", "unrolled_elementwise", "elementwise_kernel", "act_and_mul",
            rf"^(?!.*{_PRODUCT}).*(?:silu|gelu)_", "cast_transpose", "transpose_cast", r"(?:de)?quantiz",
            "_quant_(?!.*gemm)", "qparam",
            "rowwise_to_", "scaled_fp8_conversion", "fp8_conversion", "convert_(?!d[qkv])", "dropout",
            "(?:loop|input)_\\w*fusion", "wrapped_", "swiglu_(?:fwd|bwd|forward|backward)",
            "_nvfp4_(?:cast|quant)", "cvt_\\w*_to_fp[48]", "fill_(?:kernel|reverse)",
        ),
    ),
    (
        RowFamily.CONVOLUTION, Core.NEVER,
        any_of(
            "depthwise", "causal_conv1d", "conv1d_update", "dw_conv", "winograd.*transform",
        ),
    ),
    (
        RowFamily.GEMM, Core.NEVER,
        any_of(
            "gemv", "dot_kernel", "gemm_4bit_inference_naive", "_gemvx", "skinny_gemms?_?(?:vec|wvsplit)",
            "wvsplitk", "llgemm1", "gemm_half_q_half",
        ),
    ),
    (
        RowFamily.ATTENTION, Core.BY_PRECISION,
        any_of(
            "flash_?(?:fwd|bwd|attn|attention|prefill|decode|mla)", "fmha", "sdpa", "attention",
            r"(?<![a-z])_?attn_(?:fwd|bwd)", "attend_", r"^_?bwd_kernel(?:_d[dqkv_]+|_fuse)?$",
            "^_?fwd_kernel(?:_stage\\d)?$", r"_fwd_grouped_kernel_stage\d", "flashmla", r"(?<![a-z])mla_",
            r"chunk_(?:scan|state|gated|fwd|bwd|local|delta|gla|bwd_kernel)", "bmm_chunk", "delta_rule",
            "chunk_.*_fwd_kernel", "(?:batch|single)(?:prefill|decode)with", "splitkv", "cutlass_?mla",
        ),
    ),
    (
        RowFamily.CONVOLUTION, Core.BY_PRECISION,
        any_of(
            "conv", "dgrad", "wgrad", "fprop", "scudnn", "winograd", "igemm_(?:fwd|bwd|wrw|upd)",
            "miopen.*(?:fwd|bwd|wrw)", "im2col", "sp3asm", "implicit_gemm",
        ),
    ),
    (RowFamily.GEMM, Core.ALWAYS, any_of("nvjet_(?!d)", "marlin", "awq_gemm", "machete")),
    (
        RowFamily.GEMM, Core.BY_PRECISION,
        any_of(
            "(?<!fb)gemm", "Cijk_", "matmul", "fused_moe", "moe_kernel", r"triton_tem_\w*mm", "grouped_mm",
            "_mm_kernel", r"(?<![a-z])[hsd]884", "cutlass_tensorop", "nvjet", "ck_moe", "moe_(?:stage|gmm)",
            "__cublas", "_linear_kernel",
        ),
    ),
    (RowFamily.REDUCTION, Core.NEVER, any_of("reduce", "loss", "argmax", "argmin", "topk", "cumsum", "scan_")),
    (
        RowFamily.ELEMENTWISE, Core.NEVER,
        any_of("elementwise", "pointwise", "fill", "pow_", "add_kernel", r"fusion(?:_\d+)?$"),
    ),
)  # fmt: skip
# For a whole name, whose function is but a wrapper: a product's template names its loads and copies, too.
_PRODUCTS_FIRST = tuple(sorted(_SORTS, key=lambda sort: sort[0] not in MATRIX))

_COPIED = any_of("direct_copy", "(?:float8|bfloat16|half)_copy", "copykernel")
_LAYOUT = any_of("computeOffsets", "moe_align", "sort", "permute_")

_COLLECTIVES = (
    ("reduce_scatter", any_of("reduce[-_]?scatter", "userbuffers.*_rs", "quick_?reduce_?scatter")),
    ("all_gather", any_of("all[-_]?gather", "userbuffers.*_ag", "broadcast_gather")),
    ("all_to_all", any_of("all[-_]?to[-_]?all", "deep_ep", "alltoall")),
    ("all_reduce", any_of("all[-_]?reduce", "cross_device_reduce")),
    ("broadcast", any_of("broadcast", r"multi_?cast")),
    ("send_recv", any_of("send", "recv", "collective-permute", "p2p", "put", "transfer")),
    ("reduce", any_of("reduce")),
)
_COMMUNICATION = any_of(
    "nccl|rccl|hccl|oneccl|msccl", "nvshmem", r"deep_ep::(?:\w+::)*\w*(?:dispatch|combine)",
    "cross_device_(?:reduce|store)", "(?:one|two)_?shot_?all_?reduce", "all_?reduce_?(?:one|two)_?shot",
    "multimem_", "trtllm_allreduce", "allreduce_fusion_kernel", "quick_?all_?reduce", "rocshmem", "mscclpp",
    "userbuffers", "moealltoall",
    r"^(?:all-(?:reduce|gather|to-all)|reduce-scatter|collective-(?:permute|broadcast)|ragged-all-to-all)",
)  # fmt: skip
_MANGLED = re.compile(r"_ZN(?:K)?(\d.*)", re.DOTALL)
_LENGTH = re.compile(r"\d{1,4}")


@lru_cache(maxsize=4_096)
def communicates(name: str) -> bool:
    return _COMMUNICATION.search(name) is not None


@lru_cache(maxsize=4_096)
def collective_of(name: str) -> str:
    """Return the sort of a collective by its own name or its kernel's; empty where the name does not say it."""
    return next((sort for sort, pattern in _COLLECTIVES if pattern.search(name)), "")


def sort_of(name: str) -> tuple[RowFamily, Core]:
    """Return a kernel's family, and on what kernels of its sort compute."""
    if communicates(name):
        return RowFamily.COMMUNICATION, Core.NEVER
    if _COPIED.search(name):
        return RowFamily.COPY, Core.NEVER
    own = own_name(name)
    for text, sorts in ((own.rpartition("::")[2], _SORTS), (own, _SORTS), (name, _PRODUCTS_FIRST)):
        if _LAYOUT.search(text):
            return RowFamily.OTHER, Core.NEVER
        found = next(((family, core) for family, core, pattern in sorts if text and pattern.search(text)), None)
        if found is not None:
            return found
    return RowFamily.OTHER, Core.NEVER


def own_name(name: str) -> str:
    """Return a function's name without its result, its arguments and those of its template."""
    if (mangled := _MANGLED.match(name)) is not None:
        return "::".join(_identifiers(mangled[1]))
    kept: list[str] = []
    opened: list[str] = []
    for character in name.partition(" [clone")[0]:
        if character in "<(":
            opened.append(character)
        elif character == ")" and "(" in opened:
            while opened.pop() != "(":
                pass
        elif character == ">" and opened and opened[-1] == "<":
            opened.pop()
        elif not opened:
            kept.append(character)
    return "".join(kept).rpartition(" ")[2]


def _identifiers(mangled: str) -> Iterator[str]:
    """Yield the parts of a name as the Itanium ABI joins them, each behind its length."""
    place = 0
    while (length := _LENGTH.match(mangled, place)) is not None:
        place = length.end() + int(length[0])
        yield mangled[length.end() : place]
