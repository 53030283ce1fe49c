//! Native functions of the host from which something was launched, as our own recordings have them on request.

use std::fmt::Write;

use gputrace_trace::tables::StackFrame;
use gputrace_trace::{Interner, Process, Table};
use rustc_hash::FxHashMap;

use super::nesting::NONE;
use crate::kernel_names::host_function;

/// Functions of Python's interpreter that run a function of Python: what they call, it calls.
const INTERPRETER: [&str; 3] = ["_PyEval_EvalFrame", "PyEval_EvalFrame", "_TAIL_CALL_"];

/// What a row of `stack_frames` is called: a function without arguments of templates and parameters, with the file that it is in.
/// Without a function, the file and the address in it.
#[must_use]
pub fn native_name(frame: &StackFrame, names: &Interner) -> String {
    let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let object = frame.object.map(|path| file(names.get(path)));
    match (frame.function.map(|name| names.get(name)), object) {
        (Some(function), Some(object)) => format!("{} [{object}]", host_function(function)),
        (Some(function), None) => host_function(function),
        (None, Some(object)) => {
            let mut text = object;
            // Writing to a text does not fail.
            _ = write!(text, "+{:#x}", frame.address);
            text
        }
        (None, None) if frame.address == 0 => "(callers further out)".to_owned(),
        (None, None) => "(code made at run time)".to_owned(),
    }
}

/// Whether a row of `stack_frames` runs a function of Python.
#[must_use]
pub fn runs_python(frame: &StackFrame, names: &Interner) -> bool {
    let function = frame.function.map(|name| names.get(name));
    function.is_some_and(|name| INTERPRETER.iter().any(|begin| name.starts_with(begin)))
}

/// The native stacks of a process.
#[derive(Default)]
pub(crate) struct Native {
    /// By row of `stack_frames`: the caller's row, which comes before it; or [`NONE`].
    parents: Vec<u32>,
    /// Likewise: what it is called, as a place in `texts`.
    names: Vec<u32>,
    runs_python: Vec<bool>,
    texts: Vec<String>,
    /// Correlation ids with the rows of the innermost functions, sorted.
    leaves: Vec<(u32, u32)>,
}

impl Native {
    pub(crate) fn new(process: &Process, names: &Interner) -> Self {
        let (frames, launches) = (&process.tables.stack_frames, &process.tables.launch_stacks);
        let mut native = Self::default();
        if launches.is_empty() {
            return native;
        }
        let mut rows: FxHashMap<u32, u32> = FxHashMap::default();
        let mut texts: FxHashMap<String, u32> = FxHashMap::default();
        for row in 0..frames.len() {
            let frame = frames.row(row);
            let parent = frame.parent.and_then(|parent| rows.get(&parent).copied());
            let text = native_name(&frame, names);
            let next = native.texts.len() as u32;
            let name = *texts.entry(text).or_insert_with_key(|text| {
                native.texts.push(text.clone());
                next
            });
            native.parents.push(parent.unwrap_or(NONE));
            native.names.push(name);
            native.runs_python.push(runs_python(&frame, names));
            rows.entry(frame.frame).or_insert(row as u32);
        }
        native.leaves = launches
            .correlation
            .iter()
            .zip(&launches.frame)
            .filter_map(|(correlation, frame)| Some((*correlation, *rows.get(frame)?)))
            .collect();
        // A call of the runtime comes before those of the driver that it makes.
        native.leaves.sort_by_key(|(correlation, _)| *correlation);
        native.leaves.dedup_by_key(|(correlation, _)| *correlation);
        native
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// The innermost function of the stack of a call, or [`NONE`].
    pub(crate) fn leaf(&self, correlation: u32) -> u32 {
        let found = self
            .leaves
            .binary_search_by_key(&correlation, |(known, _)| *known);
        found.map_or(NONE, |place| self.leaves[place].1)
    }

    pub(super) fn text(&self, name: u32) -> &str {
        &self.texts[name as usize]
    }
}

/// Where native functions stand in a tree of functions: those of Python, and below each what it calls.
pub(super) struct Below<'a> {
    native: &'a Native,
    /// By the place of Python's function in the tree, and a native one's row: its place.
    known: FxHashMap<(u32, u32), u32>,
}

impl<'a> Below<'a> {
    pub(super) fn new(native: &'a Native) -> Self {
        Self {
            native,
            known: FxHashMap::default(),
        }
    }

    /// The place of a native function below that of Python's at `base`, or [`NONE`]: of the stack then only what Python's calls.
    /// `place`: that of a function by its caller's place and its name.
    pub(super) fn find(&mut self, base: u32, leaf: u32, mut place: impl FnMut(u32, u32) -> u32) -> u32 {
        let mut new = Vec::new();
        let mut at = leaf;
        let mut found = base;
        while at != NONE && !(base != NONE && self.native.runs_python[at as usize]) {
            if let Some(known) = self.known.get(&(base, at)) {
                found = *known;
                break;
            }
            new.push(at);
            at = self.native.parents[at as usize];
        }
        while let Some(one) = new.pop() {
            found = place(found, self.native.names[one as usize]);
            self.known.insert((base, one), found);
        }
        found
    }
}
