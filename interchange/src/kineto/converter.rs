//! What is known of one file while it is read.

use std::collections::BTreeMap;

use gputrace_trace::tables::Tables;
use rustc_hash::{FxHashMap, FxHashSet};

use super::collective::Communicators;
use super::gputrace_process::OwnProcess;
use super::ids::{Ids, Threads};
use super::text::Names;

/// What was read of a file, and what was wrong in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Elements of `traceEvents`.
    pub(crate) events: u64,
    /// Kernels, copies and memsets.
    pub(crate) device_operations: u64,
    /// Times beyond 73 years.
    pub(crate) out_of_range: u64,
    /// Complete events without a usable time or duration.
    pub(crate) no_time: u64,
    /// Events that end before they begin.
    pub(crate) backwards: u64,
    /// Complete events without a name.
    pub(crate) no_name: u64,
    /// Events that no name of a process owns, where others have such names.
    pub(crate) unowned: u64,
    /// 1 where names of processes stand behind events.
    pub(crate) named_late: u64,
    /// Lists called `traceEvents` after the first.
    pub(crate) more_lists: u64,
    /// Events whose `args` are no JSON, or no object.
    pub(crate) damaged_args: u64,
    /// Device operations that do not say their device, or say one that no number of a device is.
    pub(crate) odd_devices: u64,
    /// Members that stand twice in an event.
    pub(crate) duplicates: u64,
    /// Elements that are no objects.
    pub(crate) not_events: u64,
    /// Elements that are no JSON.
    pub(crate) damaged: u64,
    /// Elements of more than the limit.
    pub(crate) too_long: u64,
    /// Device operations whose correlation id is none that a call could have.
    pub(crate) odd_correlations: u64,
    /// Events that nothing here reads, by phase and category.
    pub(crate) unused: BTreeMap<(u8, String), u64>,
}

/// The tables of one file while they grow.
#[derive(Default)]
pub(crate) struct Converter {
    pub(crate) tables: Tables,
    pub(crate) names: Names,
    pub(crate) counts: Counts,
    pub(crate) communicators: Communicators,
    /// Events by host process: the one with most is the file's.
    pub(crate) host_pids: FxHashMap<u32, u64>,
    /// Processes that made calls.
    pub(crate) calling_pids: FxHashSet<u32>,
    /// Of our own export what it says of the process.
    pub(crate) own: Option<Box<OwnProcess>>,
    pub(super) last_caller: Option<u32>,
    pub(super) threads: Threads,
    pub(super) streams: Ids,
}

impl Converter {
    /// Counts an event of a host process.
    #[inline]
    pub(super) fn of_host(&mut self, pid: u32) {
        *self.host_pids.entry(pid).or_default() += 1;
    }

    /// Notes whose call it is.
    #[inline]
    pub(super) fn called_by(&mut self, caller: Option<u32>) {
        if caller != self.last_caller {
            self.last_caller = caller;
            self.calling_pids.extend(caller);
        }
    }

    /// Whatever was counted because something was not as it should be.
    pub(super) fn trouble(&self) -> u64 {
        let Counts {
            out_of_range,
            no_time,
            backwards,
            no_name,
            damaged_args,
            odd_devices,
            duplicates,
            odd_correlations,
            ..
        } = &self.counts;
        let of_events = out_of_range + no_time + backwards + no_name + damaged_args + odd_devices;
        of_events + duplicates + odd_correlations + self.names.trouble()
    }
}
