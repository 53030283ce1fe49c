//! Modules whose kernels are shorter than the host takes to launch them.

use gputrace_trace::pytorch::module_name;
use rustc_hash::FxHashMap;

use super::seen::{Advice, Seen};
use crate::facts::Facts;
use crate::operators::modules::class;
use crate::operators::nesting::NONE;
use crate::units::duration;

/// In such a module the host takes so many times as long as its kernels.
const TIMES_AS_LONG: i64 = 2;
/// It has so many kernels a call, in the mean.
const LEAST_KERNELS: u64 = 3;
/// Of modules in each other the innermost is named that has this share of the host time of all.
const MOST_OF_IT: f64 = 0.5;

/// The modules of one class that are in no other of it.
#[derive(Default)]
struct OfClass {
    calls: u64,
    kernels: u64,
    kernels_ns: i64,
    host_ns: i64,
    /// Places of their frames.
    frames: Vec<u32>,
}

pub(super) fn advice(seen: &Seen<'_>) -> Option<Advice> {
    let frames = &seen.by.frames;
    // By place of a module's frame: operations launched in it, and their time.
    let mut inside: FxHashMap<u32, (u64, i64)> = FxHashMap::default();
    for one in seen.launched {
        let operation = seen.operation(one);
        let Some(call) = operation.call(&seen.process.tables.api_calls) else {
            continue;
        };
        let first = Some(seen.by.module_of_call(call.row)).filter(|module| *module != NONE);
        for module in std::iter::successors(first, |module| seen.by.module_around(*module)) {
            let sum = inside.entry(module).or_default();
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(operation.end - operation.start);
        }
    }
    let class_of = |frame: u32| {
        let name = seen
            .names
            .get(seen.process.tables.python_frames.name[frames.row(frame)]);
        class(module_name(name).unwrap_or_default())
    };
    let mut classes: FxHashMap<&str, OfClass> = FxHashMap::default();
    for (frame, (kernels, kernels_ns)) in &inside {
        let class = class_of(*frame);
        let mut around = std::iter::successors(seen.by.module_around(*frame), |frame| {
            seen.by.module_around(*frame)
        });
        if around.any(|other| class_of(other) == class) {
            continue;
        }
        let of_class = classes.entry(class).or_default();
        of_class.calls += 1;
        of_class.kernels += kernels;
        of_class.kernels_ns = of_class.kernels_ns.saturating_add(*kernels_ns);
        of_class.host_ns = of_class
            .host_ns
            .saturating_add(frames.end(*frame) - frames.start(*frame));
        of_class.frames.push(*frame);
    }
    classes.retain(|_, class| {
        class.host_ns >= class.kernels_ns.saturating_mul(TIMES_AS_LONG)
            && class.kernels >= LEAST_KERNELS * class.calls
    });
    let most_ns = classes.values().map(|class| class.host_ns).max()?;
    let has_most = classes
        .iter()
        .filter(|(_, class)| class.host_ns as f64 >= MOST_OF_IT * most_ns as f64);
    // Of modules in each other the inner ones take less a call.
    let (name, class) = has_most.min_by_key(|(name, class)| {
        (
            class.host_ns / i64::try_from(class.calls).unwrap_or(1).max(1),
            **name,
        )
    })?;
    let mut modules: Vec<u32> = class.frames.clone();
    modules.sort_unstable();
    let first = *modules.first()?;
    let each = |ns: i64, count: u64| ns / i64::try_from(count).unwrap_or(1).max(1);
    Some(Advice {
        about: format!("launch-bound {name}"),
        facts: Facts::LaunchBoundModules {
            class: (*name).to_owned(),
            calls: class.calls,
            kernels: class.kernels,
            kernels_ns: class.kernels_ns,
            host_ns: class.host_ns,
        },
        text: format!(
            "The host launches the kernels of {name} more slowly than the GPU runs them: a CUDA graph (torch.compile with \
             mode=\"reduce-overhead\"), fused kernels, or a larger batch"
        ),
        evidence: format!(
            "a call of {name} launches {} operations, each of {} in the mean; the host takes {} for each",
            class.kernels / class.calls.max(1),
            duration(each(class.kernels_ns, class.kernels)),
            duration(each(class.host_ns, class.kernels))
        ),
        operations: Vec::new(),
        host: modules
            .iter()
            .map(|frame| (frames.thread(*frame), frames.start(*frame), frames.end(*frame)))
            .collect(),
        is_sure: false,
        seen: ("host", (*name).to_owned(), frames.start(first)),
    })
}
