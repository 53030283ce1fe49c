//! What operations are called.

use std::borrow::Cow;

use gputrace_trace::copy_words::{direction_name, memory_name};
use gputrace_trace::{Interner, NameId};

/// An operation's name: a kernel's, what is copied or set, or a graph that was recorded as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Name {
    Kernel(NameId),
    /// Direction and kinds of memory, as CUPTI numbers them.
    Copy {
        direction: u8,
        source: u8,
        destination: u8,
    },
    Memset {
        memory: u8,
    },
    Graph {
        graph: u32,
    },
}

impl Name {
    pub(crate) fn text(self, names: &Interner) -> Cow<'_, str> {
        Cow::Owned(match self {
            Self::Kernel(name) => return Cow::Borrowed(names.get(name)),
            Self::Copy {
                direction,
                source: 0,
                destination: 0,
            } => format!("Memcpy {}", direction_name(direction)),
            Self::Copy {
                direction,
                source,
                destination,
            } => format!(
                "Memcpy {} ({} -> {})",
                direction_name(direction),
                memory_name(source.into()),
                memory_name(destination.into())
            ),
            Self::Memset { memory: 0 } => return Cow::Borrowed("Memset"),
            Self::Memset { memory } => format!("Memset ({})", memory_name(memory.into())),
            Self::Graph { graph } => format!("CUDA graph {graph}"),
        })
    }
}
