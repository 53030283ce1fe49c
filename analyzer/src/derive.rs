//! What exporters write beside raw events, from an analysis.

use std::sync::Arc;

use gputrace_trace::derived::{
    Derived, DerivedCollective, DerivedGap, DerivedPart, DerivedPiece, DerivedProcess, DerivedStep,
};
use gputrace_trace::{Process, Recording, parallel};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::details::{Details, KernelKinds};
use crate::intervals::IntervalSet;
use crate::operators::Attributions;
use crate::{Analysis, Collective, Options, analyze_in_detail, step_number};

/// What the analysis of `recording` adds to its events.
#[must_use]
pub fn derive(recording: &Recording) -> Derived {
    let (analysis, details) = analyze_in_detail(recording, &Options::default());
    derive_from(recording, &analysis, &details)
}

/// The same, of an analysis of the whole recording that is there already.
#[must_use]
pub fn derive_from(recording: &Recording, analysis: &Analysis, details: &Details) -> Derived {
    let mut processes: Vec<DerivedProcess> = parallel::map(recording.processes.len(), |index| {
        let mut kinds = KernelKinds::new(&recording.processes[index], &recording.names);
        let kernels = &recording.processes[index].tables.kernels;
        let communicates = (0u32..)
            .zip(kernels.name.iter().zip(&kernels.correlation))
            .map(|(row, (name, correlation))| kinds.communicates(row, *name, *correlation))
            .collect();
        DerivedProcess {
            communicates,
            launched_by: Attributions::of_kernels(&recording.processes[index], &recording.names),
            ..DerivedProcess::default()
        }
    });
    for (rank, device) in analysis.ranks.iter().zip(&details.devices) {
        let Some(process) = processes.get_mut(device.process as usize) else {
            continue;
        };
        process.steps.extend(rank.steps.iter().map(|step| {
            DerivedStep {
                device: rank.device_index,
                number: step_number(&step.name),
                name: step.name.clone(),
                start_ns: step.start_ns.0,
                end_ns: step.end_ns.0,
                host_ns: step
                    .host_start_ns
                    .zip(step.host_duration_ns)
                    .map(|(start, duration)| (start.0, start.0.saturating_add(duration))),
                detected: step.detected,
                outlier: step.outlier,
                measures: step.measures.clone(),
            }
        }));
        process.gaps.extend(device.gaps.iter().map(|gap| DerivedGap {
            device: device.device_index,
            start_ns: gap.start_ns,
            end_ns: gap.end_ns,
            cause: gap.cause.name(),
        }));
    }
    let compute: Vec<FxHashMap<u32, IntervalSet>> = parallel::map(processes.len(), |index| {
        compute_by_device(&recording.processes[index], &processes[index].communicates)
    });
    for (number, parts) in (0u32..).zip(&details.collectives) {
        for part in parts {
            let Some(process) = processes.get_mut(part.process as usize) else {
                continue;
            };
            let device = part.kernel.map(|(device, _)| device);
            let compute = device.and_then(|device| compute[part.process as usize].get(&device));
            let of_kernel = part.start_ns.zip(part.end_ns).filter(|_| device.is_some());
            process.parts.push(DerivedPart {
                collective: number,
                kernel: part.kernel.map(|(_, row)| row),
                row: part.row,
                device,
                wait_ns: part.wait_ns,
                transfer_ns: part.transfer_ns,
                exposed_ns: of_kernel.map(|(start, end)| {
                    let hidden = compute.map_or(0, |compute| compute.length_within_ns(start, end));
                    end - start - hidden
                }),
            });
        }
    }
    for process in &mut processes {
        // Stable: several of one kernel stay in the order of the collectives.
        process.parts.sort_by_key(|part| part.kernel.unwrap_or(u32::MAX));
    }
    Derived {
        processes,
        collectives: collectives(&analysis.collectives),
        critical_path: critical_path(analysis, details),
    }
}

fn critical_path(analysis: &Analysis, details: &Details) -> Vec<DerivedPiece> {
    let parts = analysis.critical_path.iter().flat_map(|path| &path.parts);
    let parts: Vec<(Option<u32>, Arc<str>)> = parts
        .map(|part| (part.rank, Arc::from(part.name.as_str())))
        .collect();
    let pieces = details.critical_path.iter().filter_map(|piece| {
        let (rank, name) = parts.get(piece.part as usize)?;
        Some(DerivedPiece {
            process: piece.process,
            rank: *rank,
            start_ns: piece.start_ns,
            end_ns: piece.end_ns,
            what: piece.what,
            name: name.clone(),
        })
    });
    pieces.collect()
}

/// The union of a process's computing kernels, by device.
fn compute_by_device(process: &Process, communicates: &[bool]) -> FxHashMap<u32, IntervalSet> {
    let kernels = &process.tables.kernels;
    let mut spans: FxHashMap<u32, Vec<(i64, i64)>> = FxHashMap::default();
    for (row, communicates) in communicates.iter().enumerate() {
        if !communicates {
            let start = kernels.start_ns[row].0;
            let end = start.saturating_add(kernels.duration_ns[row].0);
            spans.entry(kernels.device[row]).or_default().push((start, end));
        }
    }
    let union = |(device, spans)| (device, IntervalSet::union_of(spans));
    spans.into_iter().map(union).collect()
}

fn collectives(all: &[Collective]) -> Vec<DerivedCollective> {
    let mut taken: FxHashSet<u64> = FxHashSet::default();
    // By what is wanted: all from there up to this are taken. Those without a number want the same.
    let mut next: FxHashMap<u64, u64> = FxHashMap::default();
    all.iter()
        .map(|collective| {
            let wanted = stable_id(collective);
            let id = next.entry(wanted).or_insert(wanted);
            while *id == 0 || !taken.insert(*id) {
                *id = id.wrapping_add(1);
            }
            DerivedCollective {
                id: *id,
                name: collective.name.clone(),
                communicator: collective.communicator.clone(),
                communicator_name: collective.communicator_name.clone(),
                sequence: collective.sequence,
                ranks: collective.ranks.clone(),
                communicator_ranks: collective.communicator_ranks,
                bytes: collective.bytes,
                dtype: collective.dtype.clone(),
                algbw: collective.algbw,
                busbw: collective.busbw,
                skew_ns: collective.skew_ns,
                last_rank: collective.last_rank,
                warm_up: collective.warm_up,
            }
        })
        .collect()
}

/// FNV-1a (64 bits) of what a collective is known by.
fn stable_id(collective: &Collective) -> u64 {
    let number = collective.sequence.unwrap_or(u64::MAX).to_le_bytes();
    let parts = [
        collective.communicator.as_bytes(),
        collective.name.as_bytes(),
        &number,
    ];
    parts
        .into_iter()
        .flat_map(|part| part.iter().chain(&[0xff]))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}
