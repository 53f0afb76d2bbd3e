"""What a kernel computes, in which precision and on which units, by the names that public libraries give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.kernels.names.families import MATRIX, collective_of, own_name
from trainguard.kernels.names.families import RowFamily as Family
from trainguard.kernels.names.kernel_names import Precision, classify

BF16 = "c10::BFloat16"
RMS = (
    "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::fused_add_rms_norm_kernel"
)
FA3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<Main<128, cutlass::bfloat16_t>>>>"
)
MULTI = "multi_tensor_apply_kernel<TensorListMetadata<3>, FusedAdamMathFunctor<float, 4>>"


@pytest.mark.parametrize(
    ("name", "operand", "family", "precision", "tensor_core"),
    [
        # Libraries' products
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNN", "", Family.GEMM, Precision.FP16, True),
        ("nvjet_sm100_qqtst_128x128_128x6_2x1_2cta_h_bz_TNT", "", Family.GEMM, Precision.FP8, True),
        ("nvjet_sss_128x256", "float", Family.GEMM, Precision.TF32, True),
        ("Cijk_Alik_Bljk_HSS_BH_Bias", "", Family.GEMM, Precision.FP16, True),
        ("Cijk_Alik_Bljk_F8BS_BH_Bias_HA_S_SAB_SAV_UserArgs_MT256x256x128_MI16x16x1", "", Family.GEMM, "fp8", True),
        ("Cijk_Alik_Bljk_F4F4S_BH_MT256x256x256_MI16x16x1", "", Family.GEMM, Precision.FP4, True),
        ("Cijk_Alik_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT64x16x64_MI16x16x1", "", Family.GEMM, "fp32", True),
        ("Cijk_Alik_Bljk_S_MX_B_Bias_HA_S_SAV_UserArgs_MT64x16x64_MI16x16x1", "", Family.GEMM, "tf32", True),
        ("Cijk_SS_BiasS_HAS_ScaleAlphaVec_PostGSU8", "", Family.REDUCTION, Precision.UNKNOWN, False),
        ("ampere_sgemm_128x64_tn", "float", Family.GEMM, Precision.FP32, False),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128", "", Family.GEMM, "fp8", True),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>", "", "gemm",
         "bf16", True),
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float, 128>", "", Family.GEMM, "bf16", False),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, __nv_bfloat16>", "", "gemm", "bf16", False),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>", "", "reduction", "bf16", False),
        ("void deep_gemm::sm100_bf16_gemm_impl", "", Family.GEMM, Precision.BF16, True),
        ("_ZN2ck16kernel_gemm_xdl_cshuffle_v3ILb1EtttfE", BF16, Family.GEMM, Precision.BF16, True),
        ("void marlin::Marlin<__nv_bfloat16, 256, 4, 16, 4, 4, 8>", "", Family.GEMM, Precision.BF16, True),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu", BF16, Family.GEMM, Precision.BF16, True),
        ("void cutlass::device_kernel<Sm100GemmKernel<cutlass::float_e2m1_t, nvfp4>>", "", "gemm", "fp4", True),
        ("void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>", "", Family.GEMM, Precision.BF16, False),
        ("fused_moe_kernel", BF16, Family.GEMM, Precision.BF16, True),
        ("gemm_fusion_dot_12", "", Family.GEMM, Precision.UNKNOWN, False),
        ("ampere_dgemm_tensorop_64x64_d884", "", Family.GEMM, Precision.FP64, True),
        # Attention, and its parts that compute on single elements
        ("attn_fwd", BF16, Family.ATTENTION, Precision.BF16, True),
        ("bwd_kernel_dk_dv", BF16, Family.ATTENTION, Precision.BF16, True),
        ("_attn_fwd", "c10::Half", Family.ATTENTION, Precision.FP16, True),
        (FA3, "", Family.ATTENTION, Precision.BF16, True),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_bf16_knob_7", "", "attention", "bf16", True),
        ("_ZN5aiter37fmha_bwd_hd128_bf16_causal_a32_rtnaE", "", Family.ATTENTION, Precision.BF16, True),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(AttentionKernel<float>::Params)", "", "attention", "fp32", True),
        ("void flash_fwd_splitkv_combine_kernel<Traits<64, cutlass::bfloat16_t>>", "", "attention", "bf16", False),
        ("void flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<cutlass::half_t>>", "", "attention",
         "fp16", False),
        ("void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16>", "", "attention", "bf16", False),
        ("triton_tem_fused_flex_attention_0", BF16, Family.ATTENTION, Precision.BF16, True),
        ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", BF16, Family.ATTENTION, Precision.BF16, True),
        ("void ck_tile::kentry<gfx950_t, 1, FmhaBwdDQDKDVKernel<Pipeline<bf16>>>", BF16, "attention", "bf16", True),
        ("void ck_tile::kentry<gfx950_t, 2, FmhaBwdOGradDotOKernel<BlockFmhaBwdOGradDotO<bf16>>>", BF16, "attention",
         "bf16", False),
        # Convolutions
        ("void conv_depthwise2d_forward_kernel<3, __nv_bfloat16, int>", "", Family.CONVOLUTION, "bf16", False),
        ("void causal_conv1d_fwd_kernel<Traits<128, 4, c10::BFloat16>>", "", Family.CONVOLUTION, "bf16", False),
        ("implicit_convolve_sgemm", "", Family.CONVOLUTION, Precision.FP32, False),
        ("void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<unsigned short", BF16, "convolution",
         "bf16", True),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "", "convolution", "tf32", True),
        ("_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel10tfloat32_tENS_9transform14copy_transposeE", "",
         "convolution",
         "tf32", True),
        # What computes on single elements in a narrow type, and what its template or its neighbour is
        (RMS, "", Family.NORMALISATION, Precision.BF16, False),
        ("void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<__nv_fp8_e4m3>", "", "normalisation", "fp8",
         False),
        ("void vllm::rms_norm_static_fp8_quant_kernel<c10::Float8_e4m3fn>", "", "normalisation", "fp8", False),
        ("void at::native::(anonymous namespace)::softmax_warp_forward<c10::BFloat16>", "", "normalisation",
         "bf16", False),
        ("void cunn_SoftMaxForward<4, float, float>", "", Family.NORMALISATION, Precision.FP32, False),
        ("void transformer_engine::(anonymous namespace)::cast_transpose_general_kernel<float, __nv_fp8_e4m3>", "",
         "elementwise", "fp8", False),
        ("void act_and_mul_fp8_kernel<c10::Float8_e4m3fn>", "", Family.ELEMENTWISE, Precision.FP8, False),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char>", "", "copy", "bf16", False),
        ("kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>", "", Family.ELEMENTWISE, Precision.BF16, False),
        ("triton_poi_fused_convolution_relu_3", "float", Family.ELEMENTWISE, Precision.FP32, False),
        ("triton_per_fused_native_layer_norm_mm_4", BF16, Family.NORMALISATION, Precision.BF16, False),
        ("triton_red_fused_sum_5", BF16, Family.REDUCTION, Precision.BF16, False),
        ("triton_tem_fused_addmm_relu_7", BF16, Family.GEMM, Precision.BF16, True),
        ("input_reduce_fusion_1", "", Family.REDUCTION, Precision.UNKNOWN, False),
        ("loop_convert_fusion", "", Family.ELEMENTWISE, Precision.UNKNOWN, False),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda>", "", "copy",
         "fp8", False),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int>", BF16,
         "copy", "bf16",
         False),
        (f"void at::native::(anonymous namespace)::{MULTI}", "", Family.OPTIMIZER, Precision.FP32, False),
        ("void (anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int>", "", "embedding",
         "fp32", False),
        ("void split_embedding_codegen_forward_unweighted_kernel<float>", "", Family.EMBEDDING, Precision.FP32, False),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)", "", Family.COMMUNICATION, Precision.BF16, False),
        ("made_up", "", Family.OTHER, Precision.UNKNOWN, False),
    ],
)  # fmt: skip
def test_family_precision_and_units(name: str, operand: str, family: str, precision: str, tensor_core: bool) -> None:
    says = classify(name, operand)
    assert (says.family, says.precision, says.tensor_core) == (family, precision, tensor_core)


@pytest.mark.parametrize(
    ("name", "sort"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "all_reduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_float", "reduce_scatter"),
        ("_allgather_base", "all_gather"),
        ("void deep_ep::internode_ll::combine<true, 7168, 9>", "all_to_all"),
        ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop", "reduce_scatter"),
        ("void userbuffers_fp16_sum_inplace_gpu_rw_ag<16>", "all_gather"),
        ("kuserbuffers_pushrecv", "send_recv"),
        ("all-reduce-start", "all_reduce"),
        ("collective-permute", "send_recv"),
        ("ncclDevKernel_SendRecv(args)", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL(args)", "broadcast"),
        ("barrier", ""),
    ],
)
def test_sort_of_a_collective(name: str, sort: str) -> None:
    assert collective_of(name) == sort


@given(st.text(alphabet="<>():,& ab_", max_size=60))
def test_any_name_has_one_own_name(name: str) -> None:
    assert not set(own_name(name)) & set(" <(")
    assert not (classify(name).tensor_core and classify(name).family not in MATRIX)
