//! A part of a recording: some ranks, some steps, a stretch of time. What is left is a recording like any other.

use gputrace_trace::derived::{Derived, DerivedProcess};
use gputrace_trace::tables::{ApiCalls, EventRecords, Synchronizations, Tables};
use gputrace_trace::{DurationNs, Process, Recording, Table, TimeNs};
use rustc_hash::FxHashSet;

use super::layout::first_moment_ns;

/// A stretch of time, absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Start.
    pub from: TimeNs,
    /// End, not in it.
    pub to: TimeNs,
}

impl Window {
    /// All of time.
    pub const ALWAYS: Self = Self {
        from: TimeNs(i64::MIN),
        to: TimeNs(i64::MAX),
    };

    /// No time at all.
    const NEVER: Self = Self {
        from: TimeNs(0),
        to: TimeNs(0),
    };

    fn overlaps(self, start: TimeNs, duration: DurationNs) -> bool {
        let end = TimeNs(start.0.saturating_add(duration.0));
        self.from < self.to && start < self.to && (end > self.from || start >= self.from)
    }

    fn holds(self, time: TimeNs) -> bool {
        self.from <= time && time < self.to
    }

    fn intersection(self, other: Self) -> Self {
        Self {
            from: self.from.max(other.from),
            to: self.to.min(other.to),
        }
    }

    /// From the beginning of the one that begins first to the end of the one that ends last.
    fn around(self, other: Self) -> Self {
        Self {
            from: self.from.min(other.from),
            to: self.to.max(other.to),
        }
    }
}

/// What is kept of a process: steps have another time on the host than on devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Of what devices did.
    pub devices: Window,
    /// Of what the host did.
    pub host: Window,
}

impl Stretch {
    /// The same time of both.
    #[must_use]
    pub const fn of(window: Window) -> Self {
        Self {
            devices: window,
            host: window,
        }
    }

    fn intersection(self, other: Self) -> Self {
        Self {
            devices: self.devices.intersection(other.devices),
            host: self.host.intersection(other.host),
        }
    }

    /// Of what may be of either.
    fn overlaps(self, start: TimeNs, duration: DurationNs) -> bool {
        self.devices.overlaps(start, duration) || self.host.overlaps(start, duration)
    }

    fn holds(self, time: TimeNs) -> bool {
        self.devices.holds(time) || self.host.holds(time)
    }
}

/// What is wanted of a recording; the default is all of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Only these ranks.
    pub ranks: Option<Vec<u32>>,
    /// Only the steps from the first number to the second, both counted: of each process from its first one's start to its
    /// last one's end, on its devices and on the host.
    pub steps: Option<(u64, u64)>,
    /// Only what has a part between these nanoseconds from the recording's first event.
    pub range_ns: Option<(i64, i64)>,
}

/// Why a selection is refused: it holds nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NothingSelected(String);

impl std::fmt::Display for NothingSelected {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for NothingSelected {}

impl Selection {
    /// Whether everything is wanted.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// The selected part, with what is known of it. Where everything is wanted, nothing is copied.
    ///
    /// # Errors
    /// When the recording has none of the ranks or steps, or no event in the range.
    pub fn of(
        &self,
        recording: Recording,
        derived: Derived,
    ) -> Result<(Recording, Derived), NothingSelected> {
        if self.is_everything() {
            return Ok((recording, derived));
        }
        let (recording, derived) = self.part_of(&recording, &derived)?;
        let events = |process: &Process| {
            let tables = &process.tables;
            tables.kernels.len()
                + tables.copies.len()
                + tables.memsets.len()
                + tables.api_calls.len()
                + tables.markers.len()
                + tables.operators.len()
                + tables.collectives.len()
        };
        if recording.processes.iter().map(events).sum::<usize>() == 0 {
            return Err(NothingSelected("there is no event in that range".to_owned()));
        }
        Ok((recording, derived))
    }

    /// A copy of the selected part, whether it has any event or not.
    ///
    /// # Errors
    /// When the recording has none of the ranks or steps.
    pub fn part_of(
        &self,
        recording: &Recording,
        derived: &Derived,
    ) -> Result<(Recording, Derived), NothingSelected> {
        let nothing = |what: String| Err(NothingSelected(what));
        let known = ranks_of(recording);
        let keep: Vec<bool> = match &self.ranks {
            Some(ranks) => known.iter().map(|rank| ranks.contains(rank)).collect(),
            None => vec![true; known.len()],
        };
        if self.ranks.is_some() && !keep.contains(&true) {
            return nothing(format!(
                "none of these ranks was recorded; recorded: {}",
                listed(&known)
            ));
        }
        let origin = first_moment_ns(recording).unwrap_or(0);
        let range = self.range_ns.map_or(Window::ALWAYS, |(from, to)| Window {
            from: TimeNs(origin.saturating_add(from)),
            to: TimeNs(origin.saturating_add(to)),
        });
        let chosen = |keep: &bool| if *keep { range } else { Window::NEVER };
        let mut windows: Vec<Stretch> = keep.iter().map(chosen).map(Stretch::of).collect();
        let mut hosts = range;
        if let Some(steps) = self.steps {
            let found: Vec<Option<Stretch>> = (0..windows.len())
                .map(|place| {
                    let process = derived.processes.get(place).filter(|_| keep[place])?;
                    steps_window(process, steps)
                })
                .collect();
            if found.iter().all(Option::is_none) {
                return nothing(format!("no rank has the steps {}..{}", steps.0, steps.1));
            }
            for (window, found) in windows.iter_mut().zip(&found) {
                *window = window.intersection(found.unwrap_or(Stretch::of(Window::NEVER)));
            }
            let found = found.iter().flatten();
            let all = found.map(|found| found.devices.around(found.host));
            if let Some(all) = all.reduce(Window::around) {
                hosts = hosts.intersection(all);
            }
        }
        let (mut recording, mut derived) = cut(recording, derived, &windows, hosts);
        let mut kept = keep.iter();
        recording.processes.retain(|_| kept.next() == Some(&true));
        let mut kept = keep.iter();
        derived.processes.retain(|_| kept.next() == Some(&true));
        let places = numbered(keep.len(), |place| keep[place]);
        derived.critical_path.retain_mut(|piece| {
            let place = places.get(piece.process as usize).copied().flatten();
            piece.process = place.unwrap_or(piece.process);
            place.is_some()
        });
        Ok((recording, derived))
    }
}

/// The rank of each process; where no process says its rank, their order.
fn ranks_of(recording: &Recording) -> Vec<u32> {
    (0u32..)
        .zip(&recording.processes)
        .map(|(place, process)| process.header.rank.unwrap_or(place))
        .collect()
}

fn listed(ranks: &[u32]) -> String {
    let mut ranks: Vec<u32> = ranks.to_vec();
    ranks.sort_unstable();
    ranks.dedup();
    let some: Vec<String> = ranks.iter().take(20).map(u32::to_string).collect();
    let more = if ranks.len() > some.len() { ", ..." } else { "" };
    format!("{}{more}", some.join(", "))
}

/// From the first of these steps' start to the last one's end.
fn steps_window(process: &DerivedProcess, (first, last): (u64, u64)) -> Option<Stretch> {
    let wanted = |number: Option<u64>| number.is_some_and(|number| (first..=last).contains(&number));
    let steps = process.steps.iter().filter(|step| wanted(step.number));
    let window = |(from, to)| Window {
        from: TimeNs(from),
        to: TimeNs(to),
    };
    let times = steps.map(|step| {
        let on_device = (step.start_ns, step.end_ns);
        Stretch {
            devices: window(on_device),
            host: window(step.host_ns.unwrap_or(on_device)),
        }
    });
    times.reduce(|all, step| Stretch {
        devices: all.devices.around(step.devices),
        host: all.host.around(step.host),
    })
}

/// Of each process the events with a part in its windows: whole, with the calls that launched them and the collectives that
/// they carry out. Of samples those within; what recorders sampled of hosts is cut to `hosts`. What is known of the events
/// stays what it is in the whole.
#[must_use]
pub fn cut(
    recording: &Recording,
    derived: &Derived,
    windows: &[Stretch],
    hosts: Window,
) -> (Recording, Derived) {
    let mut kept = Derived {
        processes: Vec::new(),
        collectives: derived.collectives.clone(),
        critical_path: derived
            .critical_path
            .iter()
            .filter(|piece| {
                let length = DurationNs(piece.end_ns.saturating_sub(piece.start_ns));
                let window = windows.get(piece.process as usize);
                window.is_some_and(|window| window.overlaps(TimeNs(piece.start_ns), length))
            })
            .cloned()
            .collect(),
    };
    let mut processes = Vec::new();
    for (place, (process, window)) in recording.processes.iter().zip(windows).enumerate() {
        let (tables, rows) = cut_tables(&process.tables, *window);
        if let Some(derived) = derived.processes.get(place) {
            kept.processes.push(cut_derived(derived, &rows, *window));
        }
        processes.push(Process {
            folder: process.folder.clone(),
            header: process.header.clone(),
            tables,
        });
    }
    drop_unused_collectives(&mut kept);
    let host = |process: &Process| Process {
        folder: process.folder.clone(),
        header: process.header.clone(),
        tables: cut_tables(&process.tables, Stretch::of(hosts)).0,
    };
    let mut part = Recording {
        path: recording.path.clone(),
        manifest: recording.manifest.clone(),
        processes,
        hosts: recording.hosts.iter().map(host).collect(),
        names: recording.names.clone(),
        losses: recording.losses.clone(),
        notes: recording.notes.clone(),
        unaligned: recording.unaligned.clone(),
        clocks: recording.clocks.clone(),
    };
    let each = windows.iter().flat_map(|window| [window.devices, window.host]);
    let bounded = each.filter(|window| *window != Window::ALWAYS && window.from < window.to);
    if let Some(Window { from, to }) = bounded.reduce(Window::around) {
        part.notes.push(format!(
            "a part of the recording: only what has a part between {} and {} ns since the epoch, with the calls \
             that launched it",
            from.0, to.0
        ));
    }
    (part, kept)
}

/// Where rows of a table went: `None` where they were left out.
type NewRows = Vec<Option<u32>>;

/// Of the rows that others name.
struct Kept {
    kernels: NewRows,
    collectives: NewRows,
}

fn numbered(count: usize, keep: impl Fn(usize) -> bool) -> NewRows {
    let mut next = 0;
    let number = |row| {
        keep(row).then(|| {
            next += 1;
            next - 1
        })
    };
    (0..count).map(number).collect()
}

fn cut_derived(derived: &DerivedProcess, kept: &Kept, window: Stretch) -> DerivedProcess {
    let new = |rows: &NewRows, row: Option<u32>| rows.get(row? as usize).copied().flatten();
    let overlaps = |start: i64, end: i64| {
        let length = DurationNs(end.saturating_sub(start));
        window.devices.overlaps(TimeNs(start), length)
    };
    let communicates = derived.communicates.iter().zip(&kept.kernels);
    let mut parts: Vec<_> = derived
        .parts
        .iter()
        .map(|part| {
            let mut part = *part;
            let had_kernel = part.kernel.is_some();
            part.kernel = new(&kept.kernels, part.kernel);
            part.row = new(&kept.collectives, part.row);
            (part, had_kernel)
        })
        .filter(|(part, had_kernel)| part.kernel.is_some() || !had_kernel && part.row.is_some())
        .map(|(part, _)| part)
        .collect();
    parts.sort_by_key(|part| part.kernel.unwrap_or(u32::MAX));
    DerivedProcess {
        steps: derived
            .steps
            .iter()
            .filter(|step| overlaps(step.start_ns, step.end_ns))
            .cloned()
            .collect(),
        communicates: communicates
            .filter_map(|(communicates, row)| row.map(|_| *communicates))
            .collect(),
        launched_by: derived
            .launched_by
            .picked(|row| kept.kernels.get(row).copied().flatten().is_some()),
        parts,
        gaps: derived
            .gaps
            .iter()
            .filter(|gap| overlaps(gap.start_ns, gap.end_ns))
            .copied()
            .collect(),
    }
}

fn drop_unused_collectives(derived: &mut Derived) {
    let mut used = vec![false; derived.collectives.len()];
    let parts = || derived.processes.iter().flat_map(|process| &process.parts);
    for part in parts() {
        if let Some(used) = used.get_mut(part.collective as usize) {
            *used = true;
        }
    }
    let new = numbered(used.len(), |place| used[place]);
    let mut keep = used.iter();
    derived.collectives.retain(|_| keep.next() == Some(&true));
    for part in derived
        .processes
        .iter_mut()
        .flat_map(|process| &mut process.parts)
    {
        if let Some(Some(number)) = new.get(part.collective as usize) {
            part.collective = *number;
        }
    }
}

/// Rows of a table for which `keep` holds.
fn rows<T: Table>(table: &T, keep: impl Fn(usize) -> bool) -> T {
    let mut kept = T::default();
    for index in (0..table.len()).filter(|&index| keep(index)) {
        kept.push(table.row(index));
    }
    kept
}

/// Recordings of events, of those calls and for those waits: what a wait waited for was often recorded before the window.
fn event_records(table: &EventRecords, calls: &ApiCalls, waits: &Synchronizations) -> EventRecords {
    let made: FxHashSet<u32> = calls.correlation.iter().copied().collect();
    let waited_for: FxHashSet<u64> = waits.event_synchronization.iter().flatten().copied().collect();
    rows(table, |index| {
        made.contains(&table.correlation[index])
            || table.event_synchronization[index].is_some_and(|recording| waited_for.contains(&recording))
    })
}

/// Standing tables and those about the recording itself stay whole.
fn cut_tables(tables: &Tables, window: Stretch) -> (Tables, Kept) {
    let mut launched: FxHashSet<u32> = FxHashSet::default();
    let Stretch { devices, host } = window;
    macro_rules! timed {
        ($table:ident, $window:ident) => {
            rows(&tables.$table, |index| {
                $window.overlaps(
                    tables.$table.start_ns[index],
                    tables.$table.duration_ns[index],
                )
            })
        };
    }
    let kernel_is_kept =
        |row: usize| devices.overlaps(tables.kernels.start_ns[row], tables.kernels.duration_ns[row]);
    // Collectives name their kernels by row.
    let kernel_rows = numbered(tables.kernels.len(), kernel_is_kept);
    let kernels = rows(&tables.kernels, kernel_is_kept);
    let copies = timed!(copies, devices);
    let memsets = timed!(memsets, devices);
    let graph_launches = timed!(graph_launches, devices);
    launched.extend(&kernels.correlation);
    launched.extend(&copies.correlation);
    launched.extend(&memsets.correlation);
    launched.extend(&graph_launches.correlation);
    // 0 is no launch.
    launched.remove(&0);
    let external_correlations = rows(&tables.external_correlations, |index| {
        launched.contains(&tables.external_correlations.correlation[index])
    });
    let launch_stacks = rows(&tables.launch_stacks, |index| {
        launched.contains(&tables.launch_stacks.correlation[index])
            || host.holds(tables.launch_stacks.time_ns[index])
    });
    let plans: FxHashSet<u64> = external_correlations.id.iter().copied().collect();
    let is_carried = |index: usize| {
        let collectives = &tables.collectives;
        let by_row = collectives.kernel[index]
            .and_then(|row| usize::try_from(row).ok())
            .and_then(|row| kernel_rows.get(row).copied().flatten());
        by_row.is_some() || collectives.plan[index].is_some_and(|plan| plans.contains(&plan))
    };
    let collective_is_kept = |index: usize| {
        host.overlaps(
            tables.collectives.start_ns[index],
            tables.collectives.duration_ns[index],
        ) || is_carried(index)
    };
    let collective_rows = numbered(tables.collectives.len(), collective_is_kept);
    let mut collectives = rows(&tables.collectives, collective_is_kept);
    for kernel in &mut collectives.kernel {
        *kernel = kernel
            .and_then(|row| usize::try_from(row).ok())
            .and_then(|row| kernel_rows.get(row).copied().flatten())
            .map(u64::from);
    }
    let markers = rows(&tables.markers, |index| {
        let duration = tables.markers.duration_ns[index].unwrap_or_default();
        host.overlaps(tables.markers.start_ns[index], duration)
    });
    let api_calls = rows(&tables.api_calls, |index| {
        launched.contains(&tables.api_calls.correlation[index])
            || host.overlaps(
                tables.api_calls.start_ns[index],
                tables.api_calls.duration_ns[index],
            )
    });
    let synchronizations = timed!(synchronizations, host);
    let event_records = event_records(&tables.event_records, &api_calls, &synchronizations);
    let tables = Tables {
        untimed_operations: rows(&tables.untimed_operations, |index| {
            tables.untimed_operations.start_ns[index].is_none_or(|start| start < devices.to)
        }),
        nccl_channels: timed!(nccl_channels, window),
        nccl_proxy: timed!(nccl_proxy, window),
        overheads: timed!(overheads, host),
        compilations: timed!(compilations, host),
        operators: timed!(operators, host),
        python_frames: timed!(python_frames, host),
        payload_fields: rows(&tables.payload_fields, |index| {
            host.holds(tables.payload_fields.time_ns[index])
        }),
        memory: rows(&tables.memory, |index| host.holds(tables.memory.time_ns[index])),
        memory_pools: rows(&tables.memory_pools, |index| {
            host.holds(tables.memory_pools.time_ns[index])
        }),
        counters: rows(&tables.counters, |index| {
            window.holds(tables.counters.time_ns[index])
        }),
        graph_nodes: tables.graph_nodes.clone(),
        stack_frames: tables.stack_frames.clone(),
        communicators: tables.communicators.clone(),
        modules: tables.modules.clone(),
        object_names: tables.object_names.clone(),
        contexts: tables.contexts.clone(),
        streams: tables.streams.clone(),
        clocks: tables.clocks.clone(),
        windows: tables.windows.clone(),
        losses: tables.losses.clone(),
        kernels,
        copies,
        memsets,
        graph_launches,
        api_calls,
        synchronizations,
        event_records,
        external_correlations,
        launch_stacks,
        collectives,
        markers,
    };
    let kept = Kept {
        kernels: kernel_rows,
        collectives: collective_rows,
    };
    (tables, kept)
}

#[cfg(test)]
mod tests;
