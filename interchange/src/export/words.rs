//! Kineto's words for CUPTI's numbers and NCCL's names.

use gputrace_trace::copy_words::{direction_name, memory_name};

/// `Memcpy HtoD (Pinned -> Device)`.
#[must_use]
pub fn copy_name(kind: u8, source: u8, destination: u8) -> String {
    let direction = direction_name(kind);
    format!(
        "Memcpy {direction} ({} -> {})",
        memory_name(source.into()),
        memory_name(destination.into())
    )
}

/// `CUpti_ActivitySynchronizationType`.
#[must_use]
pub fn synchronization_name(kind: u32) -> &'static str {
    match kind {
        1 => "Event Sync",
        2 => "Stream Wait Event",
        3 => "Stream Sync",
        4 => "Context Sync",
        _ => "Unknown Sync",
    }
}

/// `CUpti_ActivityOverheadKind`.
#[must_use]
pub fn overhead_name(kind: u32) -> &'static str {
    match kind {
        1 => "Driver Compiler",
        0x1_0000 => "Buffer Flush",
        0x2_0000 => "Instrumentation",
        0x3_0000 => "Resource",
        0x4_0000 => "Runtime Triggered Module Loading",
        0x5_0000 => "Lazy Function Loading",
        0x6_0000 => "Command Buffer Full",
        0x7_0000 => "Activity Buffer Request",
        0x8_0000 => "UVM Activity Init",
        _ => "Unknown Overhead",
    }
}

/// `CUpti_ActivityJitOperationType`.
#[must_use]
pub fn compilation_name(operation: u32) -> &'static str {
    match operation {
        1 => "JIT: loaded from the cache",
        2 => "JIT: stored in the cache",
        3 => "JIT: compiled",
        _ => "JIT",
    }
}

/// `CUpti_ActivityMemoryPoolOperationType`.
#[must_use]
pub fn pool_operation_name(operation: u32) -> &'static str {
    match operation {
        1 => "memory pool made",
        2 => "memory pool destroyed",
        3 => "memory pool trimmed",
        _ => "memory pool",
    }
}

/// `CUpti_ActivityKind` of what can be without times.
#[must_use]
pub fn activity_name(kind: u32) -> &'static str {
    match kind {
        10 => "kernel",
        1 | 22 => "copy",
        2 => "memset",
        4 | 5 => "call",
        38 => "synchronization",
        51 => "graph",
        52 => "compilation",
        _ => "operation",
    }
}

/// A call's name without the version of its entry point: `cuMemcpyHtoDAsync_v2` is `cuMemcpyHtoDAsync`.
#[must_use]
pub fn call_name(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((stem, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => stem,
        _ => name,
    }
}

/// A kernel's name as its author wrote it.
#[must_use]
pub fn kernel_name(mangled: &str) -> String {
    if !mangled.starts_with("_Z") {
        return mangled.to_owned();
    }
    cpp_demangle::Symbol::new(mangled)
        .ok()
        .and_then(|symbol| symbol.demangle().ok())
        .unwrap_or_else(|| mangled.to_owned())
}

/// `AllReduce` as PyTorch writes it: `all_reduce`.
#[must_use]
pub fn collective_name(function: &str) -> String {
    let mut name = String::new();
    for c in function.chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(c.to_lowercase());
    }
    name
}

/// `AllReduce` as PyTorch's process groups call it on kernels: `allreduce`; of operations on one tensor for all ranks, which
/// NCCL's are, `_allgather_base`.
#[must_use]
pub fn kineto_collective_name(function: &str) -> String {
    match function {
        "AllReduce" => "allreduce".to_owned(),
        "AllGather" => "_allgather_base".to_owned(),
        "ReduceScatter" => "_reduce_scatter_base".to_owned(),
        "AlltoAll" => "all_to_all".to_owned(),
        other => collective_name(other),
    }
}

/// Whether a name of the above says that the number is none that has one.
#[must_use]
pub fn is_unknown(name: &str) -> bool {
    name.contains("Unknown")
}

/// `ncclFloat32` as PyTorch writes it: `Float`.
#[must_use]
pub fn datatype_name(datatype: &str) -> &str {
    match datatype {
        "ncclInt8" | "ncclChar" => "Char",
        "ncclUint8" => "Byte",
        "ncclInt32" | "ncclInt" => "Int",
        "ncclInt64" => "Long",
        "ncclFloat16" | "ncclHalf" => "Half",
        "ncclFloat32" | "ncclFloat" => "Float",
        "ncclFloat64" | "ncclDouble" => "Double",
        "ncclBfloat16" => "BFloat16",
        "ncclFloat8e4m3" => "Float8_e4m3fn",
        "ncclFloat8e5m2" => "Float8_e5m2",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kineto() {
        assert_eq!(copy_name(1, 2, 3), "Memcpy HtoD (Pinned -> Device)");
        assert_eq!(call_name("cuMemcpyHtoDAsync_v2"), "cuMemcpyHtoDAsync");
        assert_eq!(call_name("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
        assert_eq!(call_name("my_view"), "my_view");
        assert_eq!(collective_name("ReduceScatter"), "reduce_scatter");
        assert_eq!(
            kernel_name("_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"),
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
        );
        assert_eq!(kernel_name("_Z3addPfi"), "add(float*, int)");
        assert_eq!(kernel_name("sgemm"), "sgemm");
    }
}
