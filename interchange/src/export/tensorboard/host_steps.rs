//! The training steps of a process as ranges of the host, one after the other.

use gputrace_trace::derived::DerivedStep;
use rustc_hash::FxHashMap;

use crate::export::layout::{Flow, Layout, RowKey};

/// A step: what the host did for it lies between these times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::export) struct HostStep {
    /// Greater than that of the step before.
    pub(in crate::export) number: u64,
    /// The range's text.
    pub(in crate::export) name: String,
    pub(in crate::export) start_ns: i64,
    pub(in crate::export) end_ns: i64,
    /// Whether it was guessed from a pattern of operations.
    pub(in crate::export) detected: bool,
}

/// The steps of a process, by start and without overlap; nothing where none are known.
pub(in crate::export) fn host_steps(layout: &Layout<'_>) -> Vec<HostStep> {
    let all = layout.derived.map_or(&[][..], |derived| &derived.steps);
    let Some(device) = device_with_steps(all) else {
        return Vec::new();
    };
    let mut steps: Vec<HostStep> = all
        .iter()
        .filter(|step| step.device == device)
        .map(|step| {
            let (start_ns, end_ns) = step.host_ns.unwrap_or((step.start_ns, step.end_ns));
            HostStep {
                number: step.number.unwrap_or(0),
                name: step.name.clone(),
                start_ns,
                end_ns,
                detected: step.detected,
            }
        })
        .filter(|step| step.start_ns < step.end_ns)
        .collect();
    steps.sort_by_key(|step| (step.start_ns, step.end_ns, step.number));
    if steps.iter().any(|step| step.detected) {
        move_to_launches(layout, device, &mut steps);
    }
    let mut apart: Vec<HostStep> = Vec::with_capacity(steps.len());
    for step in steps {
        match apart.last_mut() {
            // Several threads may have a range for one step.
            Some(last) if step.start_ns < last.end_ns && last.number == step.number => {
                last.end_ns = last.end_ns.max(step.end_ns);
            }
            Some(last) if step.start_ns == last.start_ns => {
                last.end_ns = last.end_ns.max(step.end_ns);
            }
            Some(last) => {
                last.end_ns = last.end_ns.min(step.start_ns);
                apart.push(step);
            }
            None => apart.push(step),
        }
    }
    if apart.windows(2).any(|pair| pair[0].number >= pair[1].number) {
        for (number, step) in (0..).zip(&mut apart) {
            step.number = number;
        }
    }
    apart
}

/// The device whose steps count: steps that are named before steps that were guessed, and then where most was done.
fn device_with_steps(steps: &[DerivedStep]) -> Option<u32> {
    let mut devices: FxHashMap<u32, (bool, i64)> = FxHashMap::default();
    for step in steps {
        let found = devices.entry(step.device).or_insert((!step.detected, 0));
        found.1 = found.1.saturating_add(step.measures.busy_ns);
    }
    let most = devices
        .into_iter()
        .max_by_key(|(device, (named, busy))| (*named, *busy, std::cmp::Reverse(*device)));
    most.map(|(device, _)| device)
}

/// Steps that were found by their first operations begin where those were launched.
fn move_to_launches(layout: &Layout<'_>, device: u32, steps: &mut [HostStep]) {
    let mut launched: FxHashMap<i64, Option<i64>> = steps.iter().map(|step| (step.start_ns, None)).collect();
    let of_device = |key: RowKey| matches!(key, RowKey::Stream { .. }) && key.device() == Some(device);
    for slice in layout
        .rows
        .iter()
        .filter(|row| of_device(row.key))
        .flat_map(|row| &row.slices)
    {
        if let (Some(found), Flow::From(launch)) = (launched.get_mut(&slice.start_ns), layout.flow(slice)) {
            *found = Some(found.map_or(launch.start_ns, |start| start.min(launch.start_ns)));
        }
    }
    let starts: Vec<i64> = steps
        .iter()
        .map(|step| {
            launched
                .get(&step.start_ns)
                .copied()
                .flatten()
                .unwrap_or(step.start_ns)
        })
        .collect();
    if starts.windows(2).any(|pair| pair[0] >= pair[1]) {
        return;
    }
    for (place, step) in steps.iter_mut().enumerate() {
        step.start_ns = starts[place];
        if let Some(next) = starts.get(place + 1) {
            step.end_ns = *next;
        }
    }
}
