//! How collectives are called in a recording: by NCCL's own names, whatever the source calls them.

/// Words to names. Of words at one place of a text the longest counts, for "reduce_scatter" begins with "reduce".
const WORDS: &[(&str, &str)] = &[
    ("reducescatter", "ReduceScatter"),
    ("allreduce", "AllReduce"),
    ("allgather", "AllGather"),
    ("alltoall", "AlltoAll"),
    ("sendrecv", "SendRecv"),
    ("broadcast", "Broadcast"),
    ("barrier", "Barrier"),
    ("gather", "Gather"),
    ("scatter", "Scatter"),
    ("reduce", "Reduce"),
    ("send", "Send"),
    ("recv", "Recv"),
    // NVSHMEM.
    ("rdxnonstream", "AllReduce"),
    ("fcollect", "AllGather"),
    ("synconstream", "Barrier"),
    ("syncallonstream", "Barrier"),
    // vLLM's kernels reduce to all, and so do FlashInfer's that reduce over the experts before.
    ("crossdevicereduce", "AllReduce"),
    ("moereduceallreduce", "AllReduce"),
    // Transformer Engine's userbuffers: "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop".
    ("suminplacegpu", "AllReduce"),
    ("suminplacegpurrrs", "ReduceScatter"),
    ("suminplacegpumcrs", "ReduceScatter"),
    ("suminplacegpurrag", "AllGather"),
    ("suminplacegpurwag", "AllGather"),
    ("suminplacegpumcag", "AllGather"),
    // Tokens to their experts, and back.
    ("dispatch", "AlltoAll"),
    ("combine", "AlltoAll"),
    ("combinesyncbarrier", "Barrier"),
    ("devicesync", "Barrier"),
];

/// Words that begin with one of the above or come before it, and tell of no collective: what prepares a dispatch; the
/// sending or receiving half of one, or what may be a half; the reduction of a rank that is alone.
const UNTOLD: &[&str] = &[
    "notify",
    "dispatchsend",
    "dispatchrecv",
    "dispatchlowlatencyasync",
    "combinesend",
    "combinerecv",
    "combinelowlatencyasync",
    "jitlldispatch",
    "jitllcombine",
    "onerankreduce",
    "suminplacegpunull",
];

/// NCCL's name ("AllReduce") of what PyTorch, NCCL's kernels or others call so ("_allgather_base", "all_to_allv",
/// "ncclDevKernel_AllReduce_Sum_f32_RING_LL"); `None` where no collective is named.
#[must_use]
pub fn function_name(text: &str) -> Option<&'static str> {
    let plain: String = text
        .chars()
        .filter(|letter| *letter != '_')
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    // "ncclDevKernel_Reduce_..._TREE" must not become a ReduceScatter by what follows it: the first word in the text counts.
    let told = WORDS.iter().map(|(word, name)| (*word, Some(*name)));
    let untold = UNTOLD.iter().map(|word| (*word, None));
    told.chain(untold)
        .filter_map(|(word, name)| Some((plain.find(word)?, std::cmp::Reverse(word.len()), name)))
        .min()
        .and_then(|(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_get_their_nccl_names() {
        for (text, name) in [
            ("allreduce", "AllReduce"),
            ("_allgather_base", "AllGather"),
            ("all_gather_into_tensor_coalesced", "AllGather"),
            ("_reduce_scatter_base", "ReduceScatter"),
            ("reduce_scatter_tensor_coalesced", "ReduceScatter"),
            ("all_to_allv", "AlltoAll"),
            ("broadcast", "Broadcast"),
            ("send", "Send"),
            ("recv", "Recv"),
            ("barrier", "Barrier"),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "AllReduce"),
            ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "SendRecv"),
            ("ncclAllReduceRingLLKernel_sum_f32", "AllReduce"),
            ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "ReduceScatter"),
            ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "Reduce"),
            ("cross_device_reduce_1stage", "AllReduce"),
            ("cross_device_reduce_2stage_naive", "AllReduce"),
            ("reduce_scatter_cross_device_store", "ReduceScatter"),
            ("moereduce_allreduce_fusion_kernel_oneshot_lamport", "AllReduce"),
            ("moe_finalize_reduce_scatter_kernel", "ReduceScatter"),
            ("multimem_one_shot_reduce_out_kernel", "Reduce"),
            ("rdxn_on_stream_kernel", "AllReduce"),
            ("fcollect_on_stream_kernel", "AllGather"),
            ("sync_all_on_stream_kernel_threadgroup", "Barrier"),
            ("userbuffers_fp16_sum_inplace_gpu_rw", "AllReduce"),
            ("userbuffers_fp16_sum_inplace_gpu_mc", "AllReduce"),
            ("userbuffers_fp16_sum_inplace_gpu_rr_blocked2", "AllReduce"),
            ("userbuffers_fp16_sum_inplace_gpu_rr_rs", "ReduceScatter"),
            ("userbuffers_fp16_sum_inplace_gpu_mc_rs_oop", "ReduceScatter"),
            ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8", "ReduceScatter"),
            ("userbuffers_fp16_sum_inplace_gpu_rw_ag", "AllGather"),
            ("userbuffers_fp16_sum_inplace_gpu_mc_ag", "AllGather"),
            ("kuserbuffers_pushsendrecv_atomic", "SendRecv"),
            ("ncclKernelAllToAllv", "AlltoAll"),
            ("ncclKernelNvlBarrier", "Barrier"),
            ("moeA2ACombineKernel", "AlltoAll"),
            ("EpDispatchInterNodeV1KernelLowLatency_bf16", "AlltoAll"),
            ("EpCombineSyncBarrier_bf16", "Barrier"),
            ("nccl_ep_jit_ht_combine_kernel", "AlltoAll"),
            ("hybrid_dispatch_impl", "AlltoAll"),
            ("device_sync_kernel", "Barrier"),
        ] {
            assert_eq!(function_name(text), Some(name), "{text}");
        }
        for text in [
            "wait",
            "oneRankReduce",
            "cached_notify_combine",
            "notify_dispatch",
            "a2a_dispatch_send_kernel",
            "a2a_combine_recv_kernel",
            "EpDispatchLowLatencyAsyncSend_bf16",
            "nccl_ep_jit_ll_dispatch_kernel",
            "userbuffers_fp16_sum_inplace_gpu_null",
            "lsa_put_signal_kernel",
        ] {
            assert_eq!(function_name(text), None, "{text}");
        }
    }
}
