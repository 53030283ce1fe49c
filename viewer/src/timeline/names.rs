//! Numbers for the names of slices, which tell their kinds too: nothing has to be interned while rows are made.
//!
//! The upper four bits are a class, the rest is what the class makes of it: mostly a name of the recording.

use gputrace_trace::copy_words::{direction_name, memory_name};
use gputrace_trace::synchronization_kind;
use gputrace_trace::{Interner, NameId};

use super::kinds;

/// Bits below the class.
const BITS: u32 = 28;
const MASK: u32 = (1 << BITS) - 1;

/// What a name's number is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Class {
    Compute,
    Communication,
    RuntimeCall,
    DriverCall,
    Range,
    Operator,
    /// A collective's enqueueing, by its function.
    Enqueue,
    /// A collective on its communicator's row, by its function.
    Collective,
    /// The waiting of that.
    Wait,
    /// Direction and kinds of memory.
    Copy,
    /// Kind of memory.
    Memset,
    /// `CUpti_ActivitySynchronizationType`.
    Synchronization,
    /// `CUpti_ActivityOverheadKind`.
    Overhead,
    GraphLaunch,
    /// See [`Other`].
    Other,
}

const CLASSES: [Class; 15] = [
    Class::Compute,
    Class::Communication,
    Class::RuntimeCall,
    Class::DriverCall,
    Class::Range,
    Class::Operator,
    Class::Enqueue,
    Class::Collective,
    Class::Wait,
    Class::Copy,
    Class::Memset,
    Class::Synchronization,
    Class::Overhead,
    Class::GraphLaunch,
    Class::Other,
];

/// The kind of each class.
const KINDS: [u8; 16] = [
    kinds::COMPUTE,
    kinds::COMMUNICATION,
    kinds::RUNTIME_CALL,
    kinds::DRIVER_CALL,
    kinds::RANGE,
    kinds::OPERATOR,
    kinds::COLLECTIVE,
    kinds::COLLECTIVE,
    kinds::WAIT,
    kinds::COPY,
    kinds::MEMSET,
    kinds::SYNCHRONIZATION,
    kinds::OVERHEAD,
    kinds::GRAPH_LAUNCH,
    kinds::OTHER,
    kinds::OTHER,
];

/// What has no name of its own and no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Other {
    Compilation,
    ProxyStep,
    ProxyOperation,
    Channel,
    Unfinished,
}

const OTHERS: [&str; 5] = [
    "compilation",
    "proxy step",
    "proxy operation",
    "NCCL channel",
    "unfinished operation",
];

/// The number of a class's member.
#[inline]
pub(crate) fn number(class: Class, member: u32) -> u32 {
    ((class as u32) << BITS) | (member & MASK)
}

/// The number of a name of the recording.
#[inline]
pub(crate) fn named(class: Class, name: NameId) -> u32 {
    number(class, name.number())
}

/// The number of a copy.
#[inline]
pub(crate) fn copy(direction: u8, source: u8, destination: u8) -> u32 {
    let member = u32::from(direction) << 16 | u32::from(source) << 8 | u32::from(destination);
    number(Class::Copy, member)
}

/// The kind of a number.
#[inline]
pub(crate) fn kind(number: u32) -> u8 {
    KINDS[(number >> BITS) as usize]
}

/// The class of a number, and what it is a member of.
pub(crate) fn parts(number: u32) -> Option<(Class, u32)> {
    CLASSES
        .get((number >> BITS) as usize)
        .map(|class| (*class, number & MASK))
}

/// The name of the recording that a number stands for, if it does.
pub(crate) fn recorded(number: u32) -> Option<NameId> {
    let (class, member) = parts(number)?;
    matches!(
        class,
        Class::Compute
            | Class::Communication
            | Class::RuntimeCall
            | Class::DriverCall
            | Class::Range
            | Class::Operator
            | Class::Enqueue
            | Class::Collective
            | Class::Wait
    )
    .then_some(NameId::new(member))
}

/// The same where names of the recording have other numbers.
pub(crate) fn renumbered(number: u32, numbers: &[NameId]) -> u32 {
    match (parts(number), recorded(number)) {
        (Some((class, _)), Some(name)) => named(
            class,
            numbers.get(name.number() as usize).copied().unwrap_or_default(),
        ),
        _ => number,
    }
}

/// `CUpti_ActivityOverheadKind` in words.
pub(crate) fn overhead(kind: u32) -> &'static str {
    match kind {
        1 => "driver compiler",
        0x1_0000 => "buffer flush",
        0x2_0000 => "instrumentation",
        0x3_0000 => "resource creation",
        0x4_0000 => "runtime module loading",
        0x5_0000 => "lazy function loading",
        0x6_0000 => "command buffer full",
        0x7_0000 => "activity buffer request",
        0x8_0000 => "user-defined activity initialization",
        _ => "CUPTI overhead",
    }
}

/// The strings that numbers stand for: those of the recording, and behind them those that only the analysis has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texts<'a> {
    pub(crate) recorded: &'a Interner,
    pub(crate) more: &'a [String],
}

impl<'a> Texts<'a> {
    fn get(&self, name: NameId) -> Option<&'a str> {
        let place = name.number() as usize;
        match place.checked_sub(self.recorded.len()) {
            None => Some(self.recorded.get(name)),
            Some(place) => self.more.get(place).map(String::as_str),
        }
    }
}

/// The whole name; `None` for a number that stands for nothing.
pub(crate) fn full(number: u32, texts: Texts<'_>) -> Option<String> {
    let (class, member) = parts(number)?;
    if let Some(name) = recorded(number) {
        let text = texts.get(name)?;
        return Some(match class {
            Class::Compute | Class::Communication => gputrace_analyzer::demangled(text).into_owned(),
            Class::Wait => format!("{text}: wait"),
            _ if text.is_empty() => "(no name)".to_owned(),
            _ => text.to_owned(),
        });
    }
    Some(match class {
        Class::Copy => {
            let [_, direction, source, destination] = member.to_be_bytes();
            let direction = direction_name(direction);
            if source == 0 && destination == 0 {
                format!("Memcpy {direction}")
            } else {
                let (source, destination) = (memory_name(source.into()), memory_name(destination.into()));
                format!("Memcpy {direction} ({source} -> {destination})")
            }
        }
        Class::Memset if member == 0 => "Memset".to_owned(),
        Class::Memset => format!("Memset ({})", memory_name(member)),
        Class::Synchronization => synchronization_kind::name(member).to_owned(),
        Class::Overhead => overhead(member).to_owned(),
        Class::GraphLaunch => format!("graph {member}"),
        _ => (*OTHERS.get(member as usize)?).to_owned(),
    })
}

/// Longest label.
const MOST_CHARACTERS: usize = 200;

/// A name for a label: kernels by their last part, and nothing longer than 200 characters.
pub(crate) fn short(number: u32, texts: Texts<'_>) -> Option<String> {
    let text = match parts(number)? {
        (Class::Compute | Class::Communication, member) => {
            gputrace_analyzer::short_name(texts.get(NameId::new(member))?)
        }
        _ => full(number, texts)?,
    };
    Some(cut(text))
}

/// The text without what is beyond 200 characters.
pub(crate) fn cut(text: String) -> String {
    shortened(text, MOST_CHARACTERS)
}

/// The text without what is beyond so many characters.
pub(crate) fn shortened(mut text: String, most: usize) -> String {
    if let Some((at, _)) = text.char_indices().nth(most) {
        let (end, _) = text.char_indices().nth(most - 1).unwrap_or((at, ' '));
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Eight bits of a name's text, the same in every recording: the page takes the lightness from it.
pub(crate) fn shade(text: &str) -> u8 {
    // FNV-1a, folded.
    let mut hash = 0x811c_9dc5_u32;
    for byte in text.as_bytes() {
        hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    }
    let [a, b, c, d] = hash.to_be_bytes();
    a ^ b ^ c ^ d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_kind_and_text() {
        let mut names = Interner::default();
        let kernel = names.intern("_ZN3foo3barEi");
        let launch = names.intern("cudaLaunchKernel");
        let more = ["SendRecv".to_owned()];
        let texts = Texts {
            recorded: &names,
            more: &more,
        };
        let told = |number: u32| {
            let (full, short) = (full(number, texts).unwrap(), short(number, texts).unwrap());
            (kind(number), full, short)
        };
        let expect = |kind, full: &str, short: &str| (kind, full.to_owned(), short.to_owned());
        assert_eq!(
            told(named(Class::Compute, kernel)),
            expect(kinds::COMPUTE, "foo::bar(int)", "bar")
        );
        assert_eq!(
            told(named(Class::Communication, kernel)),
            expect(kinds::COMMUNICATION, "foo::bar(int)", "bar")
        );
        assert_eq!(
            told(named(Class::RuntimeCall, launch)),
            expect(kinds::RUNTIME_CALL, "cudaLaunchKernel", "cudaLaunchKernel")
        );
        let text = "Memcpy HtoD (Pinned -> Device)";
        assert_eq!(told(copy(1, 2, 3)), expect(kinds::COPY, text, text));
        assert_eq!(told(copy(255, 0, 0)).1, "Memcpy Unknown");
        assert_eq!(told(number(Class::Synchronization, 3)).1, "stream synchronize");
        assert_eq!(
            told(number(Class::Other, Other::Channel as u32)).1,
            "NCCL channel"
        );
        assert_eq!(
            told(number(Class::Wait, 3)),
            expect(kinds::WAIT, "SendRecv: wait", "SendRecv: wait")
        );
        assert_eq!(full(named(Class::Compute, NameId::new(999)), texts), None);
        assert_eq!(full(u32::MAX, texts), None);
        assert_eq!(short(u32::MAX, texts), None);
    }

    #[test]
    fn labels_are_cut_at_200_characters() {
        let text = "é".repeat(100_000);
        let short = cut(text);
        assert_eq!(short.chars().count(), 200);
        assert!(short.ends_with("é…"));
        assert_eq!(cut("e".repeat(200)), "e".repeat(200));
    }
}
