//! CUPTI's numbers of copies and kinds of memory, in the words of PyTorch's profiler.

/// `CUpti_ActivityMemcpyKind` (cupti_activity.h) in the words of PyTorch's profiler.
#[must_use]
pub fn direction_name(direction: u8) -> &'static str {
    match direction {
        1 => "HtoD",
        2 => "DtoH",
        3 => "HtoA",
        4 => "AtoH",
        5 => "AtoA",
        6 => "AtoD",
        7 => "DtoA",
        8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => "Unknown",
    }
}

/// `CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE`.
pub const PAGEABLE: u8 = 1;

/// `CUpti_ActivityMemoryKind` in the same words.
#[must_use]
pub fn memory_name(memory: u32) -> &'static str {
    match memory {
        1 => "Pageable",
        2 => "Pinned",
        3 => "Device",
        4 => "Array",
        5 => "Managed",
        6 => "Device Static",
        7 => "Managed Static",
        _ => "Unknown",
    }
}
