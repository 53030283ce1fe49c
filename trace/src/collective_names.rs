//! How collectives are called in a recording: by NCCL's own names, whatever the source calls them.

/// Words to names; longer words first, for "reduce_scatter" holds "reduce" and "allgather" holds "gather".
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
    WORDS
        .iter()
        .filter_map(|(word, name)| Some((plain.find(word)?, std::cmp::Reverse(word.len()), *name)))
        .min()
        .map(|(_, _, name)| name)
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
        ] {
            assert_eq!(function_name(text), Some(name), "{text}");
        }
        assert_eq!(function_name("wait"), None);
    }
}
