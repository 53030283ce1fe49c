//! Whether the stamps of different ranks can be compared.

use std::collections::BTreeSet;

use gputrace_trace::Recording;
use gputrace_trace::alignment::{Alignment, HostClock, together};

use crate::clock_names::clock_name;
use crate::units::duration;

/// What is assumed of the ranks' clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clocks {
    /// Whether arrivals are compared over ranks.
    pub(crate) comparable: bool,
    /// Why, or why not.
    pub(crate) assumption: String,
    /// The ranks' times have nothing in common: a sentence that says which.
    pub(crate) disjoint: Option<String>,
}

/// How well the stamps of two processes can be compared.
#[derive(Clone, Debug)]
pub(crate) struct Comparison<'a> {
    alignment: Option<&'a Alignment>,
    /// By process: its clock.
    clocks: Vec<Option<u32>>,
    /// Whether one clock stamped everything, where there is no alignment.
    one_clock: bool,
}

impl<'a> Comparison<'a> {
    /// Nothing is compared.
    pub(crate) fn none() -> Self {
        Self {
            alignment: None,
            clocks: Vec::new(),
            one_clock: false,
        }
    }

    pub(crate) fn of(recording: &'a Recording, clocks: &Clocks) -> Self {
        let own = recording.processes.iter().map(|process| process.header.clock);
        Self {
            alignment: recording.clocks.as_ref(),
            clocks: own.collect(),
            one_clock: clocks.comparable,
        }
    }

    /// The clock that stamped a process.
    fn clock(&self, process: u32) -> Option<u32> {
        self.clocks.get(process as usize).copied().flatten()
    }

    /// The widest [`Self::half_width`] of any two of several processes.
    pub(crate) fn widest(&self, processes: impl Iterator<Item = u32>, time_ns: i64) -> Option<i64> {
        let Some(alignment) = self.alignment else {
            return self.one_clock.then_some(0);
        };
        let clocks: Option<BTreeSet<u32>> = processes.map(|process| self.clock(process)).collect();
        let clocks = clocks?;
        if clocks.len() < 2 {
            return Some(0);
        }
        let clocks: Option<Vec<&HostClock>> = clocks
            .into_iter()
            .map(|clock| alignment.clocks.get(clock as usize))
            .collect();
        let clocks = clocks?;
        let reference = clocks.first()?.reference;
        if clocks.iter().any(|clock| clock.reference != reference) {
            return None;
        }
        let mut widths: Vec<i64> = clocks
            .iter()
            .map(|clock| clock.half_width_at_reference(time_ns))
            .collect();
        widths.sort_unstable();
        let [.., second, first] = widths.as_slice() else {
            return None;
        };
        Some(together(*second, *first))
    }

    /// The 99 % half width of the difference of two processes' stamps at about this time: 0 by one clock, `None` where they
    /// cannot be compared.
    pub(crate) fn half_width(&self, a: u32, b: u32, time_ns: i64) -> Option<i64> {
        match self.alignment {
            None => self.one_clock.then_some(0),
            Some(_) if a == b => Some(0),
            Some(alignment) => alignment.half_width(self.clock(a)?, self.clock(b)?, time_ns),
        }
    }
}

/// What is assumed of clocks that were compared.
fn aligned(
    recording: &Recording,
    alignment: &Alignment,
    windows: &[(i64, i64, String)],
    disjoint: Option<String>,
) -> Clocks {
    let references: BTreeSet<u32> = alignment.clocks.iter().map(|clock| clock.reference).collect();
    let islands: Vec<String> = references
        .iter()
        .map(|reference| {
            let own =
                (0..alignment.clocks.len()).filter(|place| alignment.clocks[*place].reference == *reference);
            let mut own: Vec<String> = own.map(|place| clock_name(recording, alignment, place)).collect();
            let more = own.len().saturating_sub(4);
            own.truncate(4);
            match more {
                0 => own.join(", "),
                more => format!("{} and {more} more", own.join(", ")),
            }
        })
        .collect();
    let widest = alignment.clocks.iter().map(|clock| {
        let middle = i64::midpoint(clock.from_ns, clock.to_ns);
        clock.course.at(middle).half_width_ns
    });
    let count = alignment.clocks.len();
    let how = match (alignment.source.as_str(), widest.max().unwrap_or(0)) {
        ("estimated", width) => format!(
            "{count} clocks compared by what their ranks did together: the worst is right within {}",
            duration(width)
        ),
        (file, 0) => format!("{count} clocks set by {file}"),
        (file, width) => format!(
            "{count} clocks set by {file}: the worst is right within {}",
            duration(width)
        ),
    };
    let assumption = match islands.as_slice() {
        [_] => how,
        // Nobody met anybody.
        islands if islands.len() == count => {
            "ranks on several hosts that share no collective by which their clocks could be compared: nothing is compared \
             over hosts"
                .to_owned()
        }
        islands => format!("{how}; nothing is compared between ({})", islands.join(") and (")),
    };
    let one = islands.len() == 1;
    Clocks {
        comparable: (one && disjoint.is_none()) || windows.len() <= 1,
        assumption,
        disjoint: disjoint.filter(|_| one),
    }
}

/// Looks at hosts and times; `spans`: by process, from its first operation's start to its last one's end.
pub(crate) fn clocks(recording: &Recording, spans: &[Option<(i64, i64)>]) -> Clocks {
    let mut windows: Vec<(i64, i64, String)> = Vec::new();
    let mut hosts: BTreeSet<&str> = BTreeSet::new();
    for (process, span) in recording.processes.iter().zip(spans) {
        if let Some((start, end)) = *span {
            let name = process
                .header
                .rank
                .map_or_else(|| process.folder.clone(), |rank| format!("rank {rank}"));
            windows.push((start, end, name));
            hosts.insert(&process.header.host);
        }
    }
    let last_start = windows.iter().max_by_key(|(start, ..)| *start);
    let first_end = windows.iter().min_by_key(|(_, end, _)| *end);
    let disjoint = last_start
        .zip(first_end)
        .filter(|((start, ..), (_, end, _))| start > end)
        .map(|((start, _, late), (_, end, early))| {
            let seconds = start.saturating_sub(*end) as f64 / 1e9;
            format!("{early} ends {seconds:.3} s before {late} begins: they are no common run, or their clocks differ")
        });
    if let Some(alignment) = &recording.clocks {
        return aligned(recording, alignment, &windows, disjoint);
    }
    if let Some(why) = &recording.unaligned {
        return Clocks {
            comparable: windows.len() <= 1,
            assumption: format!("{why}: nothing is compared over ranks"),
            disjoint: None,
        };
    }
    let (comparable, assumption) = match (disjoint.is_some(), hosts.len(), hosts.contains("")) {
        (true, ..) => (
            false,
            "the ranks' times do not overlap: nothing is compared over ranks",
        ),
        (_, 0 | 1, false) => (true, "all ranks on one host, stamped by one clock"),
        (_, 1, true) if windows.len() <= 1 => (true, "one rank"),
        (_, 1, true) => (true, "hosts not named: one clock is assumed for all ranks"),
        _ => (
            false,
            "ranks on several hosts whose clocks are not aligned: nothing is compared over ranks",
        ),
    };
    Clocks {
        comparable,
        assumption: assumption.to_owned(),
        disjoint,
    }
}
