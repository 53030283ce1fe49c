//! Which operator, module and Python function each call of a process was made in.

use gputrace_trace::tables::{ApiCalls, Operators};
use gputrace_trace::{Interner, NameId, Process};
use rustc_hash::FxHashMap;

use super::nesting::{NONE, Nesting};

/// PyTorch's frames of modules begin so (torch/csrc/autograd/profiler_python.cpp).
const MODULE: &str = "nn.Module: ";
/// Autograd's operator around each node of the backward pass (torch/csrc/autograd/engine.cpp).
const EVALUATE: &str = "autograd::engine::evaluate_function";

/// What is in no backward pass.
const FORWARD: u32 = u32::MAX - 1;

/// In which pass of a network an operation was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Forward,
    /// Forward once more, during the backward pass, of what was not kept (activation checkpointing).
    Recomputed,
    Backward,
}

/// The operators and Python functions of a process, and in which of them its calls were made.
pub(crate) struct LaunchedBy<'a> {
    pub(crate) operators: Nesting<'a>,
    pub(crate) frames: Nesting<'a>,
    /// By row of the table of calls: the place of the innermost operator, or [`NONE`].
    operator_of_call: Vec<u32>,
    /// Likewise of the innermost Python function.
    frame_of_call: Vec<u32>,
    /// By place of an operator: the time of calls of CUDA that it made itself.
    pub(crate) calls_ns: Vec<i64>,
    /// By place of a frame: the innermost module that it is or lies in.
    modules: Vec<u32>,
    /// By place of an operator: [`FORWARD`], or of one of the backward pass the frame that its forward operator lay in, or [`NONE`].
    backward: Vec<u32>,
}

impl<'a> LaunchedBy<'a> {
    pub(crate) fn new(process: &'a Process, names: &Interner) -> Self {
        let tables = &process.tables;
        let (operators, frames, calls) = (&tables.operators, &tables.python_frames, &tables.api_calls);
        let of_operators = Nesting::new(
            &operators.thread,
            &operators.start_ns,
            &operators.duration_ns,
            &operators.number,
        );
        let of_frames = Nesting::new(
            &frames.thread,
            &frames.start_ns,
            &frames.duration_ns,
            &frames.number,
        );
        let mut all = Self {
            operator_of_call: Vec::new(),
            frame_of_call: Vec::new(),
            calls_ns: Vec::new(),
            modules: modules(&of_frames, &frames.name, names),
            backward: Vec::new(),
            operators: of_operators,
            frames: of_frames,
        };
        if all.operators.is_empty() && all.frames.is_empty() {
            return all;
        }
        all.find_calls(calls);
        all.find_backward(operators, names);
        all
    }

    fn find_calls(&mut self, calls: &ApiCalls) {
        let nesting = Nesting::new(&calls.thread, &calls.start_ns, &calls.duration_ns, &[]);
        let moments = || {
            nesting
                .places()
                .map(|place| (nesting.thread(place), nesting.start(place)))
        };
        self.operator_of_call = vec![NONE; calls.start_ns.len()];
        self.frame_of_call = vec![NONE; calls.start_ns.len()];
        self.calls_ns = vec![0; self.operators.places().len()];
        for (place, operator) in nesting.places().zip(self.operators.around(moments())) {
            self.operator_of_call[nesting.row(place)] = operator;
            // A call of the driver in one of the runtime is part of it.
            if operator != NONE && nesting.parent(place).is_none() {
                self.calls_ns[operator as usize] += nesting.end(place) - nesting.start(place);
            }
        }
        for (place, frame) in nesting.places().zip(self.frames.around(moments())) {
            self.frame_of_call[nesting.row(place)] = frame;
        }
    }

    /// Finds the operators that lie in the backward pass, and of each the frame in which the forward operator lay that the nearest
    /// "...Backward0" around it belongs to.
    ///
    /// Both have one sequence number, which counts by thread. Of forward operators with the same number on a thread the last to
    /// begin is it: it lies in the others. PyTorch calls the thread by a number of its own, so which thread that is is learned
    /// from the sequence numbers that one thread alone has.
    fn find_backward(&mut self, operators: &Operators, names: &Interner) {
        let nesting = &self.operators;
        let mut is_evaluate: FxHashMap<NameId, bool> = FxHashMap::default();
        // By place: of what lies in the backward pass the place of the node around it, or none.
        let mut nodes: Vec<u32> = Vec::with_capacity(nesting.places().len());
        let mut forward = Forward::default();
        for place in nesting.places() {
            let row = nesting.row(place);
            let name = operators.name[row];
            let evaluates = *is_evaluate
                .entry(name)
                .or_insert_with(|| names.get(name).starts_with(EVALUATE));
            let around = nesting
                .parent(place)
                .map_or(FORWARD, |parent| nodes[parent as usize]);
            let is_node =
                !evaluates && operators.forward_thread[row].is_some() && names.get(name).contains("Backward");
            nodes.push(match around {
                FORWARD if evaluates => NONE,
                FORWARD => FORWARD,
                _ if is_node => place,
                around => around,
            });
            if let (None, Some(sequence)) = (operators.forward_thread[row], operators.sequence[row]) {
                forward.add(sequence, operators.thread[row], nesting.start(place), place);
            }
        }
        let said = |node: u32| {
            let row = nesting.row(node);
            operators.sequence[row].zip(operators.forward_thread[row])
        };
        let mut distinct: Vec<u32> = nodes.iter().copied().filter(|node| *node < FORWARD).collect();
        distinct.sort_unstable();
        distinct.dedup();
        for (sequence, thread) in distinct.iter().filter_map(|node| said(*node)) {
            forward.learn(sequence, thread);
        }
        let mut pairs: Vec<(u32, u32)> = distinct
            .iter()
            .filter_map(|node| {
                let (sequence, thread) = said(*node)?;
                Some((forward.find(sequence, thread)?, *node))
            })
            .collect();
        pairs.sort_unstable();
        let moments = pairs
            .iter()
            .map(|(forward, _)| (nesting.thread(*forward), nesting.start(*forward)));
        let frames = self.frames.around(moments);
        let frame_of_node: FxHashMap<u32, u32> = pairs.iter().map(|(_, node)| *node).zip(frames).collect();
        for node in &mut nodes {
            if *node != FORWARD {
                *node = frame_of_node.get(node).copied().unwrap_or(NONE);
            }
        }
        self.backward = nodes;
    }

    /// The innermost operator around a call, or [`NONE`].
    pub(crate) fn operator(&self, call: u32) -> u32 {
        self.operator_of_call.get(call as usize).copied().unwrap_or(NONE)
    }

    /// The Python function around a call, or around the forward operator whose backward pass made it; or [`NONE`].
    pub(crate) fn frame(&self, call: u32) -> u32 {
        let frame = self.frame_of_call.get(call as usize).copied().unwrap_or(NONE);
        match self.forward_frame(self.operator(call)) {
            Some(forward) if frame == NONE => forward,
            _ => frame,
        }
    }

    /// The module that a call was made for, as the place of its frame or [`NONE`], and in which pass.
    pub(crate) fn module(&self, call: u32) -> (Pass, u32) {
        let module = |frame: u32| self.modules.get(frame as usize).copied().unwrap_or(NONE);
        let around = module(self.frame_of_call.get(call as usize).copied().unwrap_or(NONE));
        match self.forward_frame(self.operator(call)) {
            None => (Pass::Forward, around),
            Some(_) if around != NONE => (Pass::Recomputed, around),
            Some(forward) => (Pass::Backward, module(forward)),
        }
    }

    /// Of an operator of the backward pass, the frame that its forward operator lay in, or [`NONE`]; `None` of all others.
    fn forward_frame(&self, operator: u32) -> Option<u32> {
        let forward = self.backward.get(operator as usize).copied()?;
        (forward != FORWARD).then_some(forward)
    }

    /// Whether an operator does once more, in the backward pass, what its forward pass did: autograd gives numbers to operators
    /// whose backward pass it will need, and those of the backward pass itself have none of their own.
    pub(super) fn is_recomputed(&self, operator: u32, operators: &Operators) -> bool {
        let row = self.operators.row(operator);
        self.forward_frame(operator).is_some()
            && operators.sequence[row].is_some()
            && operators.forward_thread[row].is_none()
    }

    /// Whether a frame is a module's.
    pub(crate) fn is_module(&self, frame: u32) -> bool {
        self.modules[frame as usize] == frame
    }

    /// The innermost module around a frame that is one, as the place of its frame.
    pub(crate) fn module_around(&self, frame: u32) -> Option<u32> {
        let parent = self.frames.parent(frame)?;
        Some(self.modules[parent as usize]).filter(|module| *module != NONE)
    }
}

/// What a module's frame calls it: "Linear_3" of "nn.Module: Linear_3".
pub(crate) fn module_name(frame: &str) -> Option<&str> {
    frame.strip_prefix(MODULE)
}

/// By place of a frame: the innermost module that it is or lies in.
fn modules(frames: &Nesting<'_>, frame_names: &[NameId], names: &Interner) -> Vec<u32> {
    let mut is_module: FxHashMap<NameId, bool> = FxHashMap::default();
    let mut modules: Vec<u32> = Vec::with_capacity(frames.places().len());
    for place in frames.places() {
        let name = frame_names[frames.row(place)];
        let is_one = *is_module
            .entry(name)
            .or_insert_with(|| module_name(names.get(name)).is_some());
        let around = frames
            .parent(place)
            .map_or(NONE, |parent| modules[parent as usize]);
        modules.push(if is_one { place } else { around });
    }
    modules
}

/// Forward operators by sequence number.
#[derive(Default)]
struct Forward {
    /// By number and thread: the last to begin.
    by_thread: FxHashMap<(i64, u32), u32>,
    /// By number, of all threads.
    last: FxHashMap<i64, Last>,
    /// By PyTorch's number of a thread: how often each thread alone had the number.
    learned: FxHashMap<u64, FxHashMap<u32, u64>>,
}

/// The last to begin of the forward operators of one number.
struct Last {
    start: i64,
    place: u32,
    /// The thread of all of them, where it is one.
    only_thread: Option<u32>,
}

impl Forward {
    /// Takes in the operator of a place; places come in order of threads and starts.
    fn add(&mut self, sequence: i64, thread: u32, start: i64, place: u32) {
        self.by_thread.insert((sequence, thread), place);
        let last = self.last.entry(sequence).or_insert(Last {
            start,
            place,
            only_thread: Some(thread),
        });
        last.only_thread = last.only_thread.filter(|only| *only == thread);
        if start >= last.start {
            (last.start, last.place) = (start, place);
        }
    }

    fn learn(&mut self, sequence: i64, forward_thread: u64) {
        if let Some(thread) = self.last.get(&sequence).and_then(|last| last.only_thread) {
            let threads = self.learned.entry(forward_thread).or_default();
            *threads.entry(thread).or_default() += 1;
        }
    }

    /// The forward operator of a number, on the thread that PyTorch calls so where that is known.
    fn find(&self, sequence: i64, forward_thread: u64) -> Option<u32> {
        let last = self.last.get(&sequence)?;
        if last.only_thread.is_some() {
            return Some(last.place);
        }
        let threads = self.learned.get(&forward_thread);
        let thread =
            threads.and_then(|threads| threads.iter().max_by_key(|(thread, times)| (**times, **thread)));
        let there = thread.and_then(|(thread, _)| self.by_thread.get(&(sequence, *thread)));
        Some(there.copied().unwrap_or(last.place))
    }
}
