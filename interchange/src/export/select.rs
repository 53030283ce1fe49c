//! A part of a recording: some ranks, some steps, a stretch of time. What is left is a recording like any other.

use gputrace_trace::derived::{Derived, DerivedProcess};
use gputrace_trace::tables::Tables;
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
}

/// What is wanted of a recording; the default is all of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Only these ranks.
    pub ranks: Option<Vec<u32>>,
    /// Only the steps from the first number to the second, both counted: of each process from its first one's start to its
    /// last one's end.
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
        let nothing = |what: String| Err(NothingSelected(what));
        let mut recording = recording;
        let mut derived = derived;
        let origin = first_moment_ns(&recording).unwrap_or(0);
        if let Some(ranks) = &self.ranks {
            let known: Vec<u32> = ranks_of(&recording);
            let keep: Vec<bool> = known.iter().map(|rank| ranks.contains(rank)).collect();
            if !keep.contains(&true) {
                return nothing(format!(
                    "none of these ranks was recorded; recorded: {}",
                    listed(&known)
                ));
            }
            let mut kept = keep.iter();
            recording.processes.retain(|_| kept.next() == Some(&true));
            let mut kept = keep.iter();
            derived.processes.retain(|_| kept.next() == Some(&true));
        }
        let range = self.range_ns.map_or(Window::ALWAYS, |(from, to)| Window {
            from: TimeNs(origin.saturating_add(from)),
            to: TimeNs(origin.saturating_add(to)),
        });
        let mut windows = vec![range; recording.processes.len()];
        let mut hosts = range;
        if let Some(steps) = self.steps {
            let found: Vec<Option<Window>> = (0..windows.len())
                .map(|place| {
                    derived
                        .processes
                        .get(place)
                        .and_then(|process| steps_window(process, steps))
                })
                .collect();
            if found.iter().all(Option::is_none) {
                return nothing(format!("no rank has the steps {}..{}", steps.0, steps.1));
            }
            for (window, found) in windows.iter_mut().zip(&found) {
                let none = Window {
                    from: TimeNs(0),
                    to: TimeNs(0),
                };
                *window = window.intersection(found.unwrap_or(none));
            }
            let found = found.iter().flatten();
            let from = found.clone().map(|window| window.from).min();
            let to = found.map(|window| window.to).max();
            if let Some((from, to)) = from.zip(to) {
                hosts = hosts.intersection(Window { from, to });
            }
        }
        let (recording, derived) = cut(&recording, &derived, &windows, hosts);
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
            return nothing("there is no event in that range".to_owned());
        }
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
fn steps_window(process: &DerivedProcess, (first, last): (u64, u64)) -> Option<Window> {
    let wanted = |number: Option<u64>| number.is_some_and(|number| (first..=last).contains(&number));
    let steps = process.steps.iter().filter(|step| wanted(step.number));
    Some(Window {
        from: TimeNs(steps.clone().map(|step| step.start_ns).min()?),
        to: TimeNs(steps.map(|step| step.end_ns).max()?),
    })
}

/// Of each process the events with a part in its window: whole, with the calls that launched them and the collectives that
/// they carry out. Of samples those within; what recorders sampled of hosts is cut to `hosts`. What is known of the events
/// stays what it is in the whole.
#[must_use]
pub fn cut(
    recording: &Recording,
    derived: &Derived,
    windows: &[Window],
    hosts: Window,
) -> (Recording, Derived) {
    let mut kept = Derived {
        processes: Vec::new(),
        collectives: derived.collectives.clone(),
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
        tables: cut_tables(&process.tables, hosts).0,
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
    };
    let bounded = windows.iter().filter(|window| **window != Window::ALWAYS);
    let from = bounded.clone().map(|window| window.from.0).min();
    if let Some((from, to)) = from.zip(bounded.map(|window| window.to.0).max()) {
        part.notes.push(format!(
            "a part of the recording: only what has a part between {from} and {to} ns since the epoch, with the calls \
             that launched it"
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

fn cut_derived(derived: &DerivedProcess, kept: &Kept, window: Window) -> DerivedProcess {
    let new = |rows: &NewRows, row: Option<u32>| rows.get(row? as usize).copied().flatten();
    let overlaps =
        |start: i64, end: i64| window.overlaps(TimeNs(start), DurationNs(end.saturating_sub(start)));
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

/// Standing tables and those about the recording itself stay whole.
fn cut_tables(tables: &Tables, window: Window) -> (Tables, Kept) {
    let mut launched: FxHashSet<u32> = FxHashSet::default();
    macro_rules! timed {
        ($table:ident) => {
            rows(&tables.$table, |index| {
                window.overlaps(
                    tables.$table.start_ns[index],
                    tables.$table.duration_ns[index],
                )
            })
        };
    }
    let kernel_is_kept =
        |row: usize| window.overlaps(tables.kernels.start_ns[row], tables.kernels.duration_ns[row]);
    // Collectives name their kernels by row.
    let kernel_rows = numbered(tables.kernels.len(), kernel_is_kept);
    let kernels = rows(&tables.kernels, kernel_is_kept);
    let copies = timed!(copies);
    let memsets = timed!(memsets);
    let graph_launches = timed!(graph_launches);
    launched.extend(&kernels.correlation);
    launched.extend(&copies.correlation);
    launched.extend(&memsets.correlation);
    launched.extend(&graph_launches.correlation);
    // 0 is no launch.
    launched.remove(&0);
    let external_correlations = rows(&tables.external_correlations, |index| {
        launched.contains(&tables.external_correlations.correlation[index])
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
        window.overlaps(
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
        window.overlaps(tables.markers.start_ns[index], duration)
    });
    let tables = Tables {
        api_calls: rows(&tables.api_calls, |index| {
            launched.contains(&tables.api_calls.correlation[index])
                || window.overlaps(
                    tables.api_calls.start_ns[index],
                    tables.api_calls.duration_ns[index],
                )
        }),
        untimed_operations: rows(&tables.untimed_operations, |index| {
            tables.untimed_operations.start_ns[index].is_none_or(|start| start < window.to)
        }),
        nccl_channels: timed!(nccl_channels),
        nccl_proxy: timed!(nccl_proxy),
        synchronizations: timed!(synchronizations),
        overheads: timed!(overheads),
        compilations: timed!(compilations),
        operators: timed!(operators),
        payload_fields: rows(&tables.payload_fields, |index| {
            window.holds(tables.payload_fields.time_ns[index])
        }),
        memory: rows(&tables.memory, |index| window.holds(tables.memory.time_ns[index])),
        memory_pools: rows(&tables.memory_pools, |index| {
            window.holds(tables.memory_pools.time_ns[index])
        }),
        counters: rows(&tables.counters, |index| {
            window.holds(tables.counters.time_ns[index])
        }),
        graph_nodes: tables.graph_nodes.clone(),
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
        external_correlations,
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
mod tests {
    use super::*;

    #[test]
    fn what_has_a_part_in_the_window_with_its_launches() {
        let mut tables = Tables::default();
        for place in 0..10u32 {
            let at = i64::from(place) * 100;
            tables.kernels.push(gputrace_trace::tables::Kernel {
                start_ns: TimeNs(at + 50),
                duration_ns: DurationNs(60),
                correlation: place + 1,
                ..kernel()
            });
            tables.api_calls.push(gputrace_trace::tables::ApiCall {
                start_ns: TimeNs(at),
                duration_ns: DurationNs(10),
                name: gputrace_trace::NameId(0),
                kind: 5,
                callback: 0,
                thread: 1,
                correlation: place + 1,
                result: 0,
            });
        }
        let window = Window {
            from: TimeNs(305),
            to: TimeNs(550),
        };
        let part = cut_tables(&tables, window).0;
        // The one from 250 to 310 reaches in; the one at 550 begins behind it.
        assert_eq!(part.kernels.correlation, [3, 4, 5]);
        assert_eq!(part.api_calls.correlation, [3, 4, 5, 6]);
        let empty = Window {
            from: TimeNs(200),
            to: TimeNs(200),
        };
        assert!(cut_tables(&tables, empty).0.kernels.is_empty());
    }

    fn kernel() -> gputrace_trace::tables::Kernel {
        gputrace_trace::tables::Kernel {
            start_ns: TimeNs(0),
            duration_ns: DurationNs(0),
            name: gputrace_trace::NameId(0),
            device: 0,
            context: 1,
            stream: 7,
            correlation: 0,
            grid_x: 1,
            grid_y: 1,
            grid_z: 1,
            block_x: 1,
            block_y: 1,
            block_z: 1,
            registers: 0,
            static_shared_bytes: 0,
            dynamic_shared_bytes: 0,
            shared_executed_bytes: 0,
            local_bytes: 0,
            launch_type: 0,
            cluster_x: None,
            cluster_y: None,
            cluster_z: None,
            graph: None,
            graph_node: None,
        }
    }

    use gputrace_trace::derived::{DerivedCollective, DerivedPart, DerivedStep};
    use gputrace_trace::manifest::ProcessHeader;

    /// Two ranks with a kernel each 100 ns, of 50, and a step each 200 ns; the second kernel of each is a collective's.
    fn two_ranks() -> (Recording, Derived) {
        let (mut recording, mut derived) = (Recording::default(), Derived::default());
        for rank in 0..2u32 {
            let mut process = Process {
                header: ProcessHeader {
                    rank: Some(rank + 4),
                    ..ProcessHeader::new()
                },
                ..Process::default()
            };
            let mut known = DerivedProcess::default();
            for place in 0..8 {
                process.tables.kernels.push(gputrace_trace::tables::Kernel {
                    start_ns: TimeNs(1000 + i64::from(place) * 100),
                    duration_ns: DurationNs(50),
                    correlation: place + 1,
                    ..kernel()
                });
                known.communicates.push(place % 2 == 1);
                if place % 2 == 1 {
                    known.parts.push(DerivedPart {
                        collective: place / 2,
                        kernel: Some(place),
                        row: None,
                        device: Some(0),
                        wait_ns: Some(i64::from(place)),
                        transfer_ns: None,
                        exposed_ns: None,
                    });
                }
            }
            for number in 0..4 {
                known.steps.push(step(number, 1000 + 200 * number.cast_signed()));
            }
            recording.processes.push(process);
            derived.processes.push(known);
        }
        derived.collectives = (0..4).map(collective).collect();
        (recording, derived)
    }

    fn step(number: u64, start_ns: i64) -> DerivedStep {
        DerivedStep {
            device: 0,
            number: Some(number),
            name: format!("step {number}"),
            start_ns,
            end_ns: start_ns + 200,
            detected: false,
            outlier: false,
            busy_ns: 0,
            idle_ns: 0,
            compute_ns: 0,
            communication_ns: 0,
            communication_hidden_ns: 0,
            communication_exposed_ns: 0,
            copy_ns: 0,
            memset_ns: 0,
        }
    }

    fn collective(number: u64) -> DerivedCollective {
        DerivedCollective {
            id: number + 1,
            name: "AllReduce".to_owned(),
            communicator: "0xa".to_owned(),
            communicator_name: None,
            sequence: Some(number),
            ranks: vec![4, 5],
            communicator_ranks: Some(2),
            bytes: None,
            dtype: String::new(),
            algbw: None,
            busbw: None,
            skew_ns: None,
            last_rank: None,
            warm_up: false,
        }
    }

    fn selected(selection: &Selection) -> Result<(Recording, Derived), NothingSelected> {
        let (recording, derived) = two_ranks();
        selection.of(recording, derived)
    }

    #[test]
    fn everything_is_left_alone() {
        let (recording, derived) = selected(&Selection::default()).unwrap();
        assert_eq!((recording.processes, derived), {
            let (recording, derived) = two_ranks();
            (recording.processes, derived)
        });
    }

    #[test]
    fn steps_and_what_is_known_of_them() {
        let (recording, derived) = selected(&Selection {
            steps: Some((1, 2)),
            ranks: Some(vec![5, 99]),
            ..Selection::default()
        })
        .unwrap();
        let [process] = recording.processes.as_slice() else {
            panic!("one rank");
        };
        assert_eq!(process.header.rank, Some(5));
        assert_eq!(process.tables.kernels.correlation, [3, 4, 5, 6]);
        let [known] = derived.processes.as_slice() else {
            panic!("one rank");
        };
        assert_eq!(known.communicates, [false, true, false, true]);
        // Waits stay those of the whole; kernels and collectives have new numbers.
        let parts = known.parts.iter();
        let parts: Vec<_> = parts
            .map(|part| (part.kernel, part.collective, part.wait_ns))
            .collect();
        assert_eq!(parts, [(Some(1), 0, Some(3)), (Some(3), 1, Some(5))]);
        let sequences = derived.collectives.iter().map(|collective| collective.sequence);
        assert_eq!(sequences.collect::<Vec<_>>(), [Some(1), Some(2)]);
        let steps = known.steps.iter().map(|step| step.number);
        assert_eq!(steps.collect::<Vec<_>>(), [Some(1), Some(2)]);
    }

    #[test]
    fn a_range_counts_from_the_first_event() {
        let (recording, _) = selected(&Selection {
            range_ns: Some((120, 250)),
            ..Selection::default()
        })
        .unwrap();
        for process in &recording.processes {
            assert_eq!(process.tables.kernels.correlation, [2, 3]);
        }
        assert!(recording.notes[0].contains("between 1120 and 1250 ns"));
    }

    #[test]
    fn what_holds_nothing_is_refused() {
        let why = |selection: Selection| selected(&selection).map(drop).unwrap_err().to_string();
        let ranks = why(Selection {
            ranks: Some(vec![0]),
            ..Selection::default()
        });
        assert_eq!(ranks, "none of these ranks was recorded; recorded: 4, 5");
        let steps = why(Selection {
            steps: Some((9, 12)),
            ..Selection::default()
        });
        assert_eq!(steps, "no rank has the steps 9..12");
        let range = why(Selection {
            range_ns: Some((5000, i64::MAX)),
            ..Selection::default()
        });
        assert_eq!(range, "there is no event in that range");
    }
}
