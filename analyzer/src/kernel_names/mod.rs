//! What a kernel's name tells: whether the kernel moves data between GPUs and in which collective, and what to call it
//! in a table.
//!
//! These questions are asked of the kernel's own path, `deep_ep::intranode::dispatch` in
//! `void deep_ep::intranode::dispatch<8>(int4*, float*)`. Return type, template arguments and parameters name
//! other things: a kernel that takes an `ncclComm*` is not one of NCCL's. `function_path.rs` finds that path.

mod function_path;

use gputrace_trace::collective_names::function_name;

pub use function_path::demangled;
pub(crate) use function_path::host_function;
use function_path::{Segment, first_argument, is_of_word, path, starts_with_any};

use crate::glob;

/// A kernel, or a group of them, that moves data between GPUs or has them wait for each other.
struct Rule {
    /// Whose kernel it is, and the pattern that tells. "NCCL" and "RCCL" begin those of kernels that NCCL's plugin
    /// tells of, and no others.
    description: &'static str,
    /// The last name of the path, `*` standing for any characters and `|` between alternatives. Namespaces before
    /// it have to be among the kernel's, in that order.
    pattern: &'static str,
    /// A kernel's name that this rule is the first to match.
    #[cfg(test)]
    example: &'static str,
}

macro_rules! rules {
    ($($family:literal, $pattern:literal, $example:literal;)*) => {
        &[$(Rule {
            description: concat!($family, " (", $pattern, ")"),
            pattern: $pattern,
            #[cfg(test)]
            example: $example,
        }),*]
    };
}

/// In order: where two patterns match one name, the narrower one comes first.
const RULES: &[Rule] = rules! {
    "NCCL device kernel", "ncclDevKernel_*", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
    "NCCL symmetric kernel", "ncclSymkDevKernel_*|ncclSymDevKernel_*", "ncclSymkDevKernel_AllGather_LL";
    "NCCL kernel", "ncclKernel_*", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)";
    "CTRAN kernel, of NCCLX", "ncclKernel*",
        "void ncclKernelAllGatherCtranDirect<int>(int*, CtranAlgoDeviceState*, ctran::allgather::KernelArgs)";
    "NCCL kernel, 2.7 and before", "ncclAllReduce*Kernel_*|ncclAllGather*Kernel_*|ncclReduce*Kernel_*",
        "ncclAllReduceRingLLKernel_sum_f32(ncclColl)";
    "NCCL kernel, 2.7 and before", "ncclBroadcast*Kernel_*|ncclSendRecv*Kernel_*",
        "ncclBroadcastRingLLKernel_copy_i8(ncclColl)";
    "NCCL reduction of a single rank", "oneRankReduce",
        "void (anonymous namespace)::oneRankReduce<FuncPreMulSum<float> >(void*, void*)";
    "RCCL kernel", "rccl*", "void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)";
    "RCCL kernel, tracing", "ncclDevKernelDebug_*", "ncclDevKernelDebug_Generic_1";
    "MSCCL kernel", "mscclKernel_*", "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*)";
    "MSCCL++ kernel", "mscclpp::*", "void mscclpp::collective::allreduceAllPairs<0, __half>(__half*)";
    "PyTorch over NVSHMEM", "c10d::nvshmem_extension::*", "c10d::nvshmem_extension::allToAllV(void*)";
    "PyTorch over the memory of NCCL", "c10d::nccl_extension::*",
        "c10d::nccl_extension::lsa_put_signal_kernel(void**, void**, int, unsigned long, void const*)";
    "NVSHMEM kernel", "nvshmem*", "nvshmemi_proxy_rma_entrypoint_blocking";
    "NVSHMEM on a stream", "barrier_on_stream_kernel*|sync_on_stream_kernel*|sync_all_on_stream_kernel*",
        "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)";
    "NVSHMEM on a stream", "alltoall_on_stream_kernel|broadcast_on_stream_kernel|fcollect_on_stream_kernel",
        "void alltoall_on_stream_kernel<int>(int, int*, int const*, unsigned long)";
    "NVSHMEM on a stream", "rdxn_on_stream_kernel|reducescatter_on_stream_kernel",
        "void rdxn_on_stream_kernel<int, (rdxn_ops)4>(int, int*, int const*, unsigned long)";
    // Not every kernel of DeepEP: get_dispatch_layout and the copy out of the buffer stay on their GPU.
    "DeepEP within a node", "deep_ep::intranode::dispatch*|combine*|notify_*|cached_notify_*|barrier",
        "void deep_ep::intranode::notify_dispatch<8>(int const*, int*, int const*, int*)";
    "DeepEP between nodes", "deep_ep::internode::dispatch*|combine*|notify_*|cached_notify*",
        "void deep_ep::internode::combine<8, 4, __nv_bfloat16>(int4*, float*)";
    "DeepEP, low latency", "deep_ep::internode_ll::dispatch*|combine*|clean_low_latency_buffer",
        "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*, int*, long*)";
    "DeepEP, version 2",
        "deep_ep::elastic::dispatch_impl|hybrid_dispatch_impl|combine_impl|hybrid_combine_impl",
        "void deep_ep::elastic::hybrid_combine_impl<true, 24>(__nv_bfloat16*, float*)";
    "DeepEP, version 2", "deep_ep::engram_fetch_impl|engram_fetch_wait_impl",
        "void deep_ep::elastic::engram_fetch_impl<16, 4096, 7168, 8>(ncclDevComm, ncclWindow_vidmem*)";
    "DeepEP, version 2", "deep_ep::pp_send_impl|pp_recv_impl|barrier_impl",
        "void deep_ep::elastic::pp_send_impl<4, 8, 65536, 20000>(ncclDevComm, ncclWindow_vidmem*)";
    "DeepEP, hybrid", "hybrid_ep::dispatch_kernel|combine_kernel|device_sync_kernel",
        "void hybrid_ep::device_sync_kernel<8>(unsigned int*, unsigned int*)";
    // Not its kernels that stay on their GPU: scan, permute, local_reduce.
    "Expert parallelism of NCCL",
        "nccl_ep_jit_ht_dispatch_*|nccl_ep_jit_ht_combine_*|nccl_ep_jit_ht_lsa_*_sync_*",
        "nccl_ep_jit_ht_combine_kernel";
    "Expert parallelism of NCCL", "nccl_ep_jit_ll_dispatch_*|nccl_ep_jit_ll_combine_*|nccl_ep_jit_ll_clean_*",
        "nccl_ep_jit_ll_dispatch_kernel";
    "Expert parallelism of NCCL", "nccl_ep::internode_ll::dispatch*|combine*|clean_low_latency_buffer*",
        "void nccl_ep::internode_ll::dispatch<true, (ncclEpLayout_t)1, 7168>(void*, void*)";
    "UCCL-EP within a node", "uccl::intranode::dispatch*|combine*|notify_*|cached_notify_*|barrier",
        "void uccl::intranode::notify_dispatch<8>(int const*, int*, int const*, int*)";
    "UCCL-EP between nodes", "uccl::internode::dispatch*|combine*|notify_*|cached_notify*",
        "void uccl::internode::combine<8, 4, __nv_bfloat16>(int4*, float*)";
    "UCCL-EP, low latency", "uccl::internode_ll::dispatch*|combine*|clean_low_latency_buffer",
        "void uccl::internode_ll::dispatch<true, false, 7168>(void*)";
    // Not EpDispatchCopyToStaging, EpCombineSync and EpCombineAll, which copy and add on their GPU.
    "MORI", "EpDispatchIntraNode*|EpDispatchInterNode*|EpDispatchLowLatency*",
        "EpDispatchIntraNodeKernel_bf16";
    "MORI", "EpCombineIntraNode*|EpCombineInterNode*|EpCombineLowLatency*|EpCombineSyncBarrier*",
        "void mori::moe::EpCombineIntraNodeKernel<hip_bfloat16>(mori::moe::EpDispatchCombineArgs<float>)";
    "Perplexity's all-to-all", "a2a_dispatch_send_kernel|a2a_dispatch_recv_kernel",
        "void a2a_dispatch_send_kernel<16u, 8u, NotFixed, NotFixed>(unsigned long, unsigned long)";
    "Perplexity's all-to-all", "a2a_combine_send_kernel|a2a_combine_recv_kernel",
        "void rose::a2a_combine_recv_kernel<16u, 8u>(unsigned long, unsigned long)";
    "PyTorch symmetric memory", "c10d::symmetric_memory::barrier_kernel|put_signal_kernel|wait_signal_kernel",
        "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)";
    "PyTorch symmetric memory", "one_shot_all_reduce_kernel*|two_shot_all_reduce_kernel*",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(long)";
    "PyTorch symmetric memory", "multimem_all_reduce_kernel|multimem_all_gather_kernel|multimem_one_shot_*",
        "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*, unsigned long)";
    "PyTorch within a node", "c10d::intra_node_comm::*AllReduceKernel",
        "void c10d::intra_node_comm::oneShotAllReduceKernel<8u, true>(c10::BFloat16*, unsigned long)";
    "FBGEMM custom all-reduce", "fbgemm_gpu::one_shot_all_reduce|two_shot_all_reduce|reduce_scatter",
        "void fbgemm_gpu::one_shot_all_reduce<8, false>(int, int, int)";
    "AITER all-reduce",
        "aiter::cross_device_reduce_*|allreduce_fusion_kernel_*|reduce_scatter_cross_device_store",
        "void aiter::cross_device_reduce_2stage<std::bfloat16_t, 8, false>(aiter::RankData*)";
    "AITER custom collective", "aiter::allgather_*|reduce_scatter_*",
        "void aiter::allgather_lastdim<__hip_bfloat16, 8>(aiter::RankData*, aiter::RankSignals)";
    "vLLM custom all-reduce", "cross_device_reduce_*",
        "void vllm::cross_device_reduce_half_butterfly<__half, 4>(vllm::RankData*, vllm::RankSignals)";
    "QuickReduce", "allreduce_prototype_*",
        "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<CodecQ4<__half, 8> > >(int)";
    "SGLang all-reduce",
        "all_reduce_one_shot_kernel|all_reduce_one_shot_push_kernel|all_reduce_two_shot_kernel",
        "void (anonymous namespace)::all_reduce_one_shot_push_kernel<__half, 4u, true>(AllReducePushData)";
    "SGLang all-reduce", "allreduce_LL_1node|allreduce_LL_2node",
        "void allreduce_LL_1node<__nv_bfloat16>(mscclpp::MemoryChannelDeviceHandle*, __nv_bfloat16*)";
    "SGLang MoE", "sglang::moe_finalize_all_reduce_*|moe_finalize_reduce_scatter_*",
        "void sglang::moe_finalize_reduce_scatter_kernel<8u, 8u, true, true, float>(sglang::Params)";
    "FlashInfer all-reduce", "flashinfer::*allreduce_fusion_kernel_*|*_all_reduce_norm_kernel",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<1, __half, 4>(int)";
    "FlashInfer all-reduce", "oneshotAllreduceFusionKernel|twoshotAllreduceKernel|twoshot_allreduce_kernel",
        "void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<(unsigned char)4, __half>(int)";
    "TensorRT-LLM all-reduce", "oneShotAllReduceKernel|twoShotAllReduceKernel|*allreduce_fusion_kernel_*",
        "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __half>(int)";
    "TensorRT-LLM all-reduce", "*one_shot_all_reduce_norm_kernel",
        "void tensorrt_llm::kernels::lamport_style_one_shot_all_reduce_norm_kernel<__half, 8>(int)";
    "TensorRT-LLM all-reduce", "lowPrecisionTwoShot*AllReduceKernel|fusedAllReduceRMSNormKernel",
        "void tensorrt_llm::kernels::lowPrecisionTwoShotAllReduceKernel<__half, __nv_fp8_e4m3, 8>(int)";
    "TensorRT-LLM all-to-all", "moeAllToAllKernel|helixAllToAllKernel",
        "void tensorrt_llm::kernels::fused_moe_impl::moeAllToAllKernel<1, true>(int)";
    "TensorRT-LLM all-to-all", "moeA2ADispatchKernel|moeA2ACombineKernel",
        "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<BlockPolicy, 8>(int const*)";
    "Transformer Engine userbuffers", "userbuffers_fp16_sum_inplace_gpu_*|kuserbuffers_pu*",
        "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int)";
    "Transformer Engine over NVSHMEM", "wait_until_on_stream_and_reset",
        "wait_until_on_stream_and_reset(unsigned long*, unsigned long, unsigned long)";
    "XLA collective",
        "stream_executor::gpu::AllReduceKernelImpl|RaggedAllToAllKernelImpl|MultiGpuBarrierKernelImpl",
        "void stream_executor::gpu::AllReduceKernelImpl<float, (xla::ReductionKind)0>(float*, float*)";
    "oneCCL kernel", "oneccl_*", "oneccl_allreduce_pcie";
};

/// What would match a rule, but is compute: whole layers of experts in one kernel, which multiplies matrices beside
/// sending tokens to and fro. DeepGEMM's kernels of that kind (`sm100_fp8_fp4_mega_moe_impl`) match no rule.
const FUSED: &str = "mscclpp::megamoe::*";

/// Whether a kernel with this name, mangled or not, moves data between GPUs: its name alone tells.
#[must_use]
pub fn is_communication(name: &str) -> bool {
    communication(name).is_some()
}

/// The rule by which a kernel with this name, mangled or not, moves data between GPUs.
pub(crate) fn communication(name: &str) -> Option<&'static str> {
    let name = demangled(name);
    let path = path(&name);
    let (last, outer) = path.split_last()?;
    let rule = RULES.iter().find(|rule| matches(last, outer, rule.pattern))?;
    (!matches(last, outer, FUSED)).then_some(rule.description)
}

/// The collective that the name of a communication kernel, mangled or not, tells.
pub(crate) fn collective_of(name: &str) -> Option<&'static str> {
    let name = demangled(name);
    let path = path(&name);
    let (last, outer) = path.split_last()?;
    // These send, receive or do both, as their parameters say: all-to-all is only the last.
    let may_be_half = outer.iter().any(|outer| outer.name == "internode_ll");
    function_name(last.name).filter(|_| !may_be_half)
}

/// Whether the kernel `last`, which is in the namespaces `outer`, is as `pattern` says.
fn matches(last: &Segment<'_>, outer: &[Segment<'_>], pattern: &str) -> bool {
    let (namespaces, names) = pattern.rsplit_once("::").unwrap_or(("", pattern));
    let mut outer = outer.iter();
    names.split('|').any(|pattern| glob::matches(pattern, last.name))
        && (namespaces.is_empty()
            || namespaces
                .split("::")
                .all(|namespace| outer.any(|outer| outer.name == namespace)))
}

/// A kernel's name in a table: the last one of its path, as Nsight has it. CUTLASS calls every kernel alike,
/// so one of its kernels goes by its template argument; a lambda or an operator by what it belongs to, too.
/// A name that is not C++ stays as it is.
#[must_use]
pub fn short_name(name: &str) -> String {
    let text = demangled(name);
    let is_plain = !text.contains(['(', '<']) && !text.contains("::");
    let short = if is_plain || starts_with_any(&text, &["Memcpy ", "Memset ", "["]) {
        text.into_owned()
    } else {
        let path = path(&text);
        let from = path.iter().rposition(Segment::is_telling).unwrap_or(0);
        let names: Vec<&str> = path[from..].iter().map(|segment| segment.name).collect();
        // "operator ()" is how the tools of CUDA spell it.
        let joined = || names.join("::").replace("operator (", "operator(");
        cutlass_kernel(&path).map_or_else(joined, str::to_owned)
    };
    match short.trim() {
        "" => name.trim().to_owned(),
        _ => short,
    }
}

/// Deeper than this nobody wraps a kernel, but a file may hold any name.
const MOST_ENABLED: usize = 4;

/// What tells a kernel of CUTLASS from its others: the type that its one kernel function is a template of.
fn cutlass_kernel<'a>(kernel: &[Segment<'a>]) -> Option<&'a str> {
    let (last, outer) = kernel.split_last()?;
    if !matches!(last.name, "Kernel" | "Kernel2" | "device_kernel") {
        return None;
    }
    let mut argument = path(first_argument(last.arguments)).pop()?;
    // `enable_sm90_or_later<Kernel>` and its like: the kernel, for one architecture.
    for _ in 0..MOST_ENABLED {
        if argument.name.starts_with("enable_")
            && let Some(inner) = path(first_argument(argument.arguments)).pop()
        {
            argument = inner;
        }
    }
    let is_cutlass = |segment: &Segment<'_>| segment.name.starts_with("cutlass");
    let of_cutlass = outer.iter().any(is_cutlass) || is_cutlass(&argument);
    (of_cutlass && argument.name.starts_with(is_of_word)).then_some(argument.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whose communication it is or `-`, the short name, and the name.
    const NAMES: &str = r"
NCCL device kernel | ncclDevKernel_AllReduce_Sum_f32_RING_LL | _Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE
NCCL device kernel | ncclDevKernel_Generic_1 | ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>) [clone .kd]
NCCL device kernel | ncclDevKernel_Generic | ncclDevKernel_Generic.kd
NCCL symmetric kernel | ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16 | ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)
NCCL kernel, 2.7 and before | ncclSendRecvKernel_copy_i8 | ncclSendRecvKernel_copy_i8
NCCL reduction of a single rank | oneRankReduce | _ZN50_GLOBAL__N__7a2ac2c3_9_onerank_cu_ba1f6d8a_129837613oneRankReduceI13FuncPreMulSumIfEEEvPvS3_mmb
NVSHMEM on a stream | barrier_on_stream_kernel_threadgroup | _Z36barrier_on_stream_kernel_threadgroupIL13threadgroup_t1EEvii
DeepEP within a node | cached_notify_combine | void deep_ep::intranode::cached_notify_combine<(int)8>(void **, int *, int, int, int, int **, int)
DeepEP, low latency | dispatch_opt1_hidden6144 | void deep_ep::internode_ll::dispatch_opt1_hidden6144<1, false>(void*, void*)
DeepEP, low latency | dispatch | void deep_ep::internode_ll::dispatch<(bool)1, (bool)1, (int)6144>(void *, void *, int *, long *, int *, int...
DeepEP, low latency | dispatch | void deep_ep::legacy::internode_ll::dispatch<true, false, 7168>(void*, void*)
DeepEP within a node | combine | void deep_ep::legacy::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*)
DeepEP between nodes | dispatch | void primus_turbo::deep_ep::legacy::internode::dispatch<8>(int4*)
DeepEP, version 2 | barrier_impl | void deep_ep::comm::barrier_impl<true, 1, 512, 1, 8, 20000, false>(ncclDevComm)
DeepEP, hybrid | dispatch_kernel | void hybrid_ep::dispatch_kernel<hybrid_ep::warp_group<1, 0>, 8, 4>(hybrid_ep::dispatch_kernel_param_t<unsigned short>)
- | scan | void hybrid_ep::scan<512, 8>(bool const*, int*)
- | dispatch | void legacy::intranode::dispatch<8>(int*)
- | dispatch | void intranode::deep_ep::dispatch<8>(int*)
- | dispatch | void DeepEPLikeUserKernel::dispatch<3>(int)
- | get_dispatch_layout | void deep_ep::legacy::layout::get_dispatch_layout<256, 4, 8>(long const*, int*)
Expert parallelism of NCCL | nccl_ep_jit_ht_lsa_head_sync_kernel | nccl_ep_jit_ht_lsa_head_sync_kernel
- | nccl_ep_jit_ht_scan_kernel | nccl_ep_jit_ht_scan_kernel
- | nccl_ep_jit_ht_permute_kernel | nccl_ep_jit_ht_permute_kernel
MORI | EpCombineIntraNodeKernel_bf16_nop2p | EpCombineIntraNodeKernel_bf16_nop2p
MORI | EpDispatchInterNodeV1KernelLowLatency_bf16 | EpDispatchInterNodeV1KernelLowLatency_bf16
MORI | EpCombineSyncBarrier_bf16 | EpCombineSyncBarrier_bf16
- | EpCombineSync_bf16 | EpCombineSync_bf16
- | EpDispatchCopyToStaging_bf16 | EpDispatchCopyToStaging_bf16
- | megaMoe | void mscclpp::megamoe::detail::megaMoe<false>()
- | sm100_fp8_fp4_mega_moe_impl | void deep_gemm::sm100_fp8_fp4_mega_moe_impl<8192u, 7168u>(int)
MSCCL++ kernel | executionKernel | void mscclpp::executionKernel<__half, mscclpp::PacketLL16>(int, __half*)
- | get_dispatch_layout | void deep_ep::layout::get_dispatch_layout<256, 4, 8>(long const*, int*, int*, int*, bool*, int, int, int, int)
- | get_dispatch_layout | void deep_ep::internode::get_dispatch_layout<256, 32, 8>(long const*, int*)
- | dispatch_copy_epilogue_impl | void deep_ep::elastic::dispatch_copy_epilogue_impl<true, 24>(void*, void*)
vLLM custom all-reduce | cross_device_reduce_2stage | void vllm::cross_device_reduce_2stage<__hip_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)
vLLM custom all-reduce | cross_device_reduce_2stage_naive | void sglang::cross_device_reduce_2stage_naive<__hip_bfloat16, 8>(sglang::RankData*)
AITER all-reduce | cross_device_reduce_1stage_naive | void aiter::cross_device_reduce_1stage_naive<__hip_bfloat16, 8>(aiter::RankData*)
AITER custom collective | allgather_vec | void aiter::allgather_vec<__hip_bfloat16, 8>(aiter::RankData*)
AITER custom collective | reduce_scatter_first_dim | void aiter::reduce_scatter_first_dim<__hip_bfloat16, 8>(aiter::RankData*)
AITER all-reduce | reduce_scatter_cross_device_store | void aiter::reduce_scatter_cross_device_store<bf16, 4>(aiter::RankData*)
- | local_device_load_rmsnorm | void aiter::local_device_load_rmsnorm<bf16, 512, 2>(aiter::RankSignals)
FlashInfer all-reduce | allreduce_fusion_kernel_twoshot_sync | void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, false>(flashinfer::trtllm_allreduce_fusion::AllReduceFusionParams<__nv_bfloat16>)
FlashInfer all-reduce | twoshot_allreduce_kernel | void tensorrt_llm::kernels::mnnvl::twoshot_allreduce_kernel<8, __nv_bfloat16>(__nv_bfloat16*)
TensorRT-LLM all-reduce | lowPrecisionTwoShotHierAllReduceKernel | void tensorrt_llm::kernels::lowPrecisionTwoShotHierAllReduceKernel<__nv_bfloat16, __nv_fp8_e4m3, 8>(int)
TensorRT-LLM all-reduce | fusedAllReduceRMSNormKernel | void fusedAllReduceRMSNormKernel<__half, __half2, 4, true, false, true>(ncclWindow_vidmem*)
TensorRT-LLM all-to-all | helixAllToAllKernel | void tensorrt_llm::kernels::(anonymous namespace)::helixAllToAllKernel<true>(int)
- | moeA2APrepareDispatchKernel | void tensorrt_llm::kernels::moe_comm::moeA2APrepareDispatchKernel(int*)
SGLang MoE | moe_finalize_all_reduce_kernel | void sglang::moe_finalize_all_reduce_kernel<4u, 5120u, 6u>(int)
PyTorch over the memory of NCCL | nccl_wait_for_signal_kernel | c10d::nccl_extension::nccl_wait_for_signal_kernel(void**, int, unsigned long)
CTRAN kernel, of NCCLX | ncclKernelSendRecv | void ncclKernelSendRecv<false>(int*, CtranAlgoDeviceState*, ctran::sendrecv::KernelSendRecvArgs)
CTRAN kernel, of NCCLX | ncclKernelNvlBarrier | ncclKernelNvlBarrier(int, int, CtranAlgoDeviceState*)
- | my_ncclKernelSend | my_ncclKernelSend(ncclComm*)
- | copy | void ncclKernel_user::copy<ncclKernelSend>(ncclComm*)
- | kuserbuffers_inc | kuserbuffers_inc(int*)
Transformer Engine userbuffers | kuserbuffers_pushsend | kuserbuffers_pushsend(int*, int*, int4*, int4*, int)
- | my_ncclDevKernel_user | my_ncclDevKernel_user(float*)
- | ncclExample | ncclExample(ncclComm*)
- | copy_kernel | void my::copy_kernel<ncclDevKernel_AllReduce, mscclpp::all_gather>(ncclComm*, nvshmem_team_t)
- | barrier_kernel | void my::barrier_kernel<int>(c10d::symmetric_memory::barrier_kernel*)
- | batch_norm_collect_statistics_channels_last_kernel | void at::native::batch_norm_collect_statistics_channels_last_kernel<at::native::Var, float, float, 4>(float const*, SyncBatchNorm)
- | hipMemcpyPeer_kernel | hipMemcpyPeer_kernel
- | triton_poi_fused_add_all_reduce_4 | triton_poi_fused_add_all_reduce_4
- | triton_poi_fused_add_0 | triton_poi_fused_add_0
- | vectorized_elementwise_kernel | _ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_
- | elementwise_kernel | void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>(int, at::native::{lambda(int)#1})
- | CatArrayBatchedCopy | void at::native::<unnamed>::CatArrayBatchedCopy<at::native::<unnamed>::OpaqueType<(unsigned int)4>, unsigned int, (int)2>(T1 *, T2)
- | softmax_warp_forward | void (anonymous namespace)::softmax_warp_forward<float, (8 > 3), ((1) >> (2))>(float*, int)
- | reduce_kernel | std::enable_if<(4 < 8), void>::type at::native::reduce_kernel<512>(at::native::ReduceOp<float, &x::operator<, (a->b)>)
- | launch::{lambda(int)#1}::operator() | void launch<float>(int)::{lambda(int)#1}::operator()(int) const
- | add::operator() | at::native::add::operator ()(int) const
- | V::operator< | bool V::operator< <int>(V const&)
- | operator_kernel | void operator_kernel<int>(int)
- | cutlass_80_tensorop_s16816gemm_bf16_128x64_64x3_tn_align8 | void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_128x64_64x3_tn_align8>(cutlass_80_tensorop_s16816gemm_bf16_128x64_64x3_tn_align8::Params)
- | cutlass_tensorop_f16_s16816fprop | void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop>(cutlass_tensorop_f16_s16816fprop::Params)
- | FlashAttnFwdSm90 | void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Mainloop<2, cute::tuple<cute::C<128> > > > > >(flash::Params)
- | GemmUniversal | void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int>, void>>>(T1::Params)
- | Kernel | void my::Kernel<float>(float*)
- | nvjet_tst_64x8_64x16_2x4_h_bz_TNT | nvjet_tst_64x8_64x16_2x4_h_bz_TNT
- | Cijk_Alik_Bljk_BBS_BH_MT128x128x32_SE | Cijk_Alik_Bljk_BBS_BH_MT128x128x32_SE.kd
- | Memcpy HtoD (Pinned -> Device) | Memcpy HtoD (Pinned -> Device)
- | Memset (Device) | Memset (Device)
- | [CUDA memcpy Peer-to-Peer] | [CUDA memcpy Peer-to-Peer]
- | _ZNnot mangled | _ZNnot mangled
- | void (*f(int))(int) | void (*f(int))(int)
- | >>>((( | >>>(((
";

    /// The collective or `-`, and the name.
    const COLLECTIVES: &str = r"
AllReduce | ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)
AllReduce | _Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE
AllReduce | void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(long)
AllReduce | void (anonymous namespace)::all_reduce_one_shot_push_kernel<__half, 4u, true>(Push)
AllReduce | void at::foo<at::bar<int>, (anonymous namespace)::gather>::oneShotAllReduceKernel<8u>(int)
AllReduce | void c10d::symmetric_memory::(anonymous namespace)::multimem_one_shot_all_reduce_kernel<float>()
AllReduce | void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)
AllGather | void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*, unsigned long)
AllGather | void aiter::allgather_lastdim<__hip_bfloat16, 8>(aiter::RankData*)
ReduceScatter | _Z42userbuffers_fp16_sum_inplace_gpu_mc_rs_oopILi8EEvii
ReduceScatter | void fbgemm_gpu::reduce_scatter<8, allreduce>(int, broadcast*)
AlltoAll | void deep_ep::legacy::intranode::dispatch<8, 768, 8192>(int4*, float*)
AlltoAll | void hybrid_ep::combine_kernel<hybrid_ep::reduce_group<4, 0>, 8>(int)
AlltoAll | void tensorrt_llm::kernels::(anonymous namespace)::helixAllToAllKernel<true>(int)
Barrier | void hybrid_ep::device_sync_kernel<8>(unsigned int*, unsigned int*)
- | _ZN50_GLOBAL__N__7a2ac2c3_9_onerank_cu_ba1f6d8a_129837613oneRankReduceI13FuncPreMulSumIfEEEvPvS3_mmb
- | void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*, int*, long*)
- | void (anonymous namespace)::a2a_dispatch_send_kernel<true, 8>(unsigned long)
- | void mscclpp::allreduce::executionKernel<__half, allgather>(reduce*)
- | ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)
";

    #[test]
    fn names_of_many_libraries() {
        for line in NAMES.lines().filter(|line| !line.is_empty()) {
            let (family, rest) = line.split_once(" | ").unwrap();
            let (short, name) = rest.split_once(" | ").unwrap();
            assert_eq!(short_name(name), short, "{name}");
            let found = communication(name).map_or("-", |rule| rule.split(" (").next().unwrap());
            assert_eq!(found, family, "{name}");
        }
    }

    #[test]
    fn every_rule_is_the_first_to_match_its_example() {
        for rule in RULES {
            assert_eq!(communication(rule.example), Some(rule.description));
        }
        let explained = communication("ncclDevKernel_SendRecv");
        assert_eq!(explained, Some("NCCL device kernel (ncclDevKernel_*)"));
    }

    #[test]
    fn collectives_are_told_by_the_last_name() {
        for line in COLLECTIVES.lines().filter(|line| !line.is_empty()) {
            let (collective, name) = line.split_once(" | ").unwrap();
            assert_eq!(collective_of(name).unwrap_or("-"), collective, "{name}");
        }
    }

    #[test]
    fn a_name_that_stands_for_gigabytes_stays_as_it_is() {
        // Each parameter is a pair of the one before it.
        let pairs: String = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
            .chars()
            .map(|i| format!("S_IS{i}_S{i}_E"))
            .collect();
        let name = format!("_Z1fSt4pairIiiE{pairs}");
        assert_eq!(short_name(&name), name);
        assert_eq!(short_name("_Z1fSt4pairIiiES_IS0_S0_E"), "f");
    }

    fn some_name() -> impl Strategy<Value = String> {
        let pieces = r"(_Z|N|1f|E|I|S_|void |operator|foo|é|::|<|>|\(|\)|\{|\}|\[|\]| |,|->|\*|enable_|cutlass::Kernel<|\.kd){0,24}";
        prop_oneof![any::<String>(), pieces]
    }

    proptest! {
        #[test]
        fn no_name_is_too_odd(name in some_name()) {
            communication(&name);
            collective_of(&name);
            prop_assert_eq!(short_name(&name).trim().is_empty(), name.trim().is_empty());
        }
    }
}
