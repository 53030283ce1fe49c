//! Which operator, module and Python function each call of a process was made in.

use gputrace_trace::pytorch::{begins_backward, is_backward_node, module_name};
use gputrace_trace::tables::{ApiCalls, Operators};
use gputrace_trace::{Interner, NameId, Process};
use rustc_hash::FxHashMap;

use super::nesting::{NONE, Nesting};

/// Marks operators outside of the backward pass.
const FORWARD: u32 = u32::MAX - 1;

/// The pass in which an operation was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Forward,
    /// The forward pass run again during the backward pass (activation checkpointing).
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
    /// By place of an operator: [`FORWARD`] outside of the backward pass; inside it, the frame around its forward operator, or
    /// [`NONE`] where that is not known.
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

    /// Finds the operators of the backward pass and, for each, the frame around the forward operator of its nearest "...Backward0".
    ///
    /// Both share a sequence number, which counts per thread. If several forward operators on a thread have it, the last to begin is
    /// the right one: it is nested in the others. PyTorch numbers threads in its own way; which thread a number means is learned
    /// from the sequence numbers that occur on one thread only.
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
                .or_insert_with(|| begins_backward(names.get(name)));
            let around = nesting
                .parent(place)
                .map_or(FORWARD, |parent| nodes[parent as usize]);
            let is_node = is_backward_node(names.get(name), operators.forward_thread[row]);
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
        let frame = self.frame_of_call.get(call as usize).copied().unwrap_or(NONE);
        self.module_within(self.operator(call), frame)
    }

    /// The module of what was done in this operator and this Python function, and in which pass.
    fn module_within(&self, operator: u32, frame: u32) -> (Pass, u32) {
        let module = |frame: u32| self.modules.get(frame as usize).copied().unwrap_or(NONE);
        let around = module(frame);
        match self.forward_frame(operator) {
            None => (Pass::Forward, around),
            Some(_) if around != NONE => (Pass::Recomputed, around),
            Some(forward) => (Pass::Backward, module(forward)),
        }
    }

    /// The innermost operator at moments of threads, which come sorted, and the module that it is for; each as its place or [`NONE`].
    pub(super) fn at(&self, moments: &[(u32, i64)]) -> Vec<(u32, u32)> {
        let operators = self.operators.around(moments.iter().copied());
        let frames = self.frames.around(moments.iter().copied());
        let both = operators.into_iter().zip(frames);
        both.map(|(operator, frame)| (operator, self.module_within(operator, frame).1))
            .collect()
    }

    /// The innermost module around a call itself, as the place of its frame, or [`NONE`].
    pub(super) fn module_of_call(&self, call: u32) -> u32 {
        let frame = self.frame_of_call.get(call as usize).copied().unwrap_or(NONE);
        self.modules.get(frame as usize).copied().unwrap_or(NONE)
    }

    /// For an operator of the backward pass: the frame around its forward operator, or [`NONE`]. `None` for all others.
    fn forward_frame(&self, operator: u32) -> Option<u32> {
        let forward = self.backward.get(operator as usize).copied()?;
        (forward != FORWARD).then_some(forward)
    }

    /// Whether an operator repeats its forward pass during the backward pass. Autograd numbers the operators that it will have to
    /// differentiate; operators of the backward pass itself have no sequence number of their own.
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
    /// By sequence number and thread, where several threads have the number: the last to begin.
    by_thread: FxHashMap<(u32, u32), u32>,
    /// By sequence number, over all threads.
    last: FxHashMap<u32, Last>,
    /// By PyTorch's thread number: how many sequence numbers each thread was the only one to have.
    learned: FxHashMap<u32, FxHashMap<u32, u64>>,
}

/// The last to begin of the forward operators with one sequence number.
struct Last {
    start: i64,
    place: u32,
    /// Their thread, if they are all on one.
    only_thread: Option<u32>,
}

impl Forward {
    /// Adds an operator. Places come in order of threads and starts.
    fn add(&mut self, sequence: u32, thread: u32, start: i64, place: u32) {
        let last = self.last.entry(sequence).or_insert(Last {
            start,
            place,
            only_thread: Some(thread),
        });
        if last.only_thread != Some(thread) {
            if let Some(only) = last.only_thread.take() {
                self.by_thread.insert((sequence, only), last.place);
            }
            self.by_thread.insert((sequence, thread), place);
        }
        if start >= last.start {
            (last.start, last.place) = (start, place);
        }
    }

    fn learn(&mut self, sequence: u32, forward_thread: u32) {
        if let Some(thread) = self.last.get(&sequence).and_then(|last| last.only_thread) {
            let threads = self.learned.entry(forward_thread).or_default();
            *threads.entry(thread).or_default() += 1;
        }
    }

    /// The forward operator with a sequence number, on PyTorch's thread `forward_thread` where that is known.
    fn find(&self, sequence: u32, forward_thread: u32) -> Option<u32> {
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
