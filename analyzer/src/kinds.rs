//! What an operation does, and how that is known.

use std::borrow::Cow;

use gputrace_trace::Interner;
use serde::{Deserialize, Serialize};

use crate::kernel_names;
use crate::operations::Name;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Kind {
    Compute,
    Communication,
    Copy,
    Memset,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Compute, Self::Communication, Self::Copy, Self::Memset];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::Copy => "copy",
            Self::Memset => "memset",
        }
    }
}

/// How the kind is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum KindFrom {
    /// By the type of its record or the category of its event.
    Record,
    /// NCCL's profiler plugin said that NCCL launched it.
    NcclPlugin,
    /// The trace describes a collective on it.
    Metadata,
    /// By its name alone.
    Name,
}

impl KindFrom {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::NcclPlugin => "nccl plugin",
            Self::Metadata => "trace metadata",
            Self::Name => "name",
        }
    }
}

/// Why an operation has its kind, in words.
pub(crate) fn reason(name: Name, kind: Kind, from: KindFrom, names: &Interner) -> Cow<'static, str> {
    Cow::Borrowed(match (kind, from) {
        (Kind::Copy, _) => "the record of a copy",
        (Kind::Memset, _) => "the record of a memset",
        (_, _) if matches!(name, Name::Graph { .. }) => {
            "a CUDA graph as a whole: what ran in it is not recorded"
        }
        (_, KindFrom::NcclPlugin) => "NCCL's profiler plugin says that NCCL launched it",
        (_, KindFrom::Metadata) => "the trace describes a collective on it",
        (_, KindFrom::Name) => {
            let rule = match name {
                Name::Kernel(name) => kernel_names::communication(names.get(name)),
                _ => None,
            };
            return Cow::Owned(format!("by its name: {}", rule.unwrap_or("no rule")));
        }
        (_, KindFrom::Record) => "a kernel; nothing says that it communicates",
    })
}
