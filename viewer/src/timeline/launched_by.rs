//! Who launched one operation: the operator around its call, the module, the functions of Python and native ones. It is looked for
//! when it is asked for, among the rows of the call's thread and in blocks of the tables, and agrees with the analysis
//! (`analyzer/src/operators/launched_by.rs`), which does it for all operations at once.

use std::cmp::Reverse;

use gputrace_analyzer::{native_name, runs_python};
use gputrace_trace::pytorch::{begins_backward, is_backward_node, module_name};
use gputrace_trace::tables::{LaunchStacks, Operator, Operators, PythonFrames};
use gputrace_trace::{NameId, Table as _};
use rustc_hash::FxHashMap;

use super::answers::{LaunchedBy, OperatorOf};
use super::gather::Place;
use super::source::{Table, table_and_row};
use super::{Timeline, names};

/// Python functions that are listed.
const MOST_FRAMES: usize = 30;
/// Characters of shapes, types and functions.
const MOST_CHARACTERS: usize = 2000;
/// An operator around a moment.
struct Around {
    /// Its row in the timeline, and its place there.
    row: u32,
    place: usize,
    /// Its row in the table.
    record: usize,
    operator: Operator,
}

/// The Python functions around a moment, innermost first.
type Stack = Vec<NameId>;

impl Timeline {
    /// Operator, module and stack at a moment of a thread of a process; `correlation`: of a call at that moment. For an operator itself,
    /// no operator is named.
    pub(super) fn launched_by(
        &self,
        (process, thread, at): (u32, u32, i64),
        correlation: Option<u32>,
        is_operator: bool,
    ) -> Option<LaunchedBy> {
        let operators = self.operators_around(process, thread, at);
        let own = self.stack_at(process, thread, at);
        let (in_backward, node) = self.backward(&operators);
        let module_in = |stack: &Stack| {
            let mut names = stack.iter().map(|name| self.recorded().get(*name));
            names.find_map(module_name).map(cut)
        };
        let own_module = module_in(&own);
        // A call of the backward pass belongs to the module of its forward operator.
        let forward = (in_backward && own_module.is_none())
            .then(|| self.forward_of(process, node?))
            .flatten()
            .map(|(thread, at)| self.stack_at(process, thread, at));
        let pass = match (in_backward, own_module.is_some()) {
            (false, _) => "forward",
            (true, true) => "recomputed",
            (true, false) => "backward",
        };
        let module = own_module.or_else(|| forward.as_ref().and_then(module_in));
        let stack = if own.is_empty() {
            forward.unwrap_or_default()
        } else {
            own
        };
        let native = correlation.map_or_else(Vec::new, |correlation| {
            self.native_stack(process, correlation, !stack.is_empty())
        });
        let operator =
            (operators.last().filter(|_| !is_operator)).and_then(|operator| self.operator_of(operator));
        if operator.is_none() && stack.is_empty() && module.is_none() && native.is_empty() {
            return None;
        }
        Some(LaunchedBy {
            operator,
            pass: module.is_some().then_some(pass),
            module,
            native_frames: native.len().min(MOST_FRAMES),
            more_frames: (native.len() + stack.len()).saturating_sub(MOST_FRAMES),
            stack: (native.iter().map(|name| cut(name)))
                .chain(stack.iter().map(|name| cut(self.recorded().get(*name))))
                .take(MOST_FRAMES)
                .collect(),
        })
    }

    /// The native functions of a call's stack, innermost first; where there are functions of Python, those that they called.
    fn native_stack(&self, process: u32, correlation: u32, in_python: bool) -> Vec<String> {
        let frames = match self.base.store.process(process) {
            Some(process) if correlation != 0 => &process.tables.stack_frames,
            _ => return Vec::new(),
        };
        let mut innermost: Option<u32> = None;
        if !frames.is_empty() {
            self.base.store.blocks::<LaunchStacks>(process, |block| {
                let row = || block.correlation.iter().position(|id| *id == correlation);
                innermost = innermost.or_else(|| row().map(|row| block.frame[row]));
            });
        }
        let mut rows: FxHashMap<u32, usize> = FxHashMap::default();
        for (row, frame) in frames.frame.iter().enumerate() {
            rows.entry(*frame).or_insert(row);
        }
        let mut native = Vec::new();
        let mut row = innermost.and_then(|frame| rows.get(&frame).copied());
        while let Some(one) = row {
            let frame = frames.row(one);
            if in_python && runs_python(&frame, self.recorded()) {
                break;
            }
            native.push(native_name(&frame, self.recorded()));
            // A caller comes before what it calls.
            let parent = frame.parent.and_then(|parent| rows.get(&parent).copied());
            row = parent.filter(|parent| *parent < one);
        }
        native
    }

    /// The operators around a moment of a thread, outermost first.
    fn operators_around(&self, process: u32, thread: u32, at: i64) -> Vec<Around> {
        let Some(&(first, count)) = self.rows.places.get(&(process, Place::Thread(thread))) else {
            return Vec::new();
        };
        let around = |row: u32| {
            let slices = self.rows.slices(row)?;
            let place = slices.first_from(at.saturating_add(1)).checked_sub(1)?;
            let (table, record) = table_and_row(slices.source(place));
            let is_around = table == Table::Operator && slices.end_of(place) > at;
            is_around.then_some(())?;
            let operator = self.base.store.row::<Operators>(process, record)?;
            Some(Around {
                row,
                place,
                record,
                operator,
            })
        };
        let mut found: Vec<Around> = (first..first + count).filter_map(around).collect();
        // Of equal times PyTorch's number says which holds the other; lanes go by the table's order.
        found.sort_by_key(|Around { record, operator, .. }| {
            let (start, duration) = (operator.start_ns.0, operator.duration_ns.0);
            (
                start,
                Reverse(start.saturating_add(duration)),
                operator.number,
                *record,
            )
        });
        found
    }

    /// Whether these operators are of the backward pass, and the innermost node of it among them.
    fn backward<'a>(&self, operators: &'a [Around]) -> (bool, Option<&'a Operator>) {
        let (mut in_backward, mut node) = (false, None);
        for Around { operator, .. } in operators {
            let name = self.recorded().get(operator.name);
            in_backward |= begins_backward(name);
            if in_backward && is_backward_node(name, operator.forward_thread) {
                node = Some(operator);
            }
        }
        (in_backward, node)
    }

    /// Thread and start of the forward operator of a node of the backward pass: the last to begin of those with its sequence
    /// number. Numbers count by thread: where several threads have it nothing is said.
    fn forward_of(&self, process: u32, node: &Operator) -> Option<(u32, i64)> {
        let sequence = node.sequence?;
        let mut last: Option<(u32, i64)> = None;
        let mut is_one_thread = true;
        self.base.store.blocks::<Operators>(process, |block| {
            for row in 0..block.sequence.len() {
                if block.sequence[row] != Some(sequence) || block.forward_thread[row].is_some() {
                    continue;
                }
                let (thread, start) = (block.thread[row], block.start_ns[row].0);
                is_one_thread &= last.is_none_or(|(other, _)| other == thread);
                if last.is_none_or(|(_, latest)| start >= latest) {
                    last = Some((thread, start));
                }
            }
        });
        last.filter(|_| is_one_thread)
    }

    /// The Python functions around a moment of a thread: those that begin last are the innermost.
    fn stack_at(&self, process: u32, thread: u32, at: i64) -> Stack {
        let mut around: Vec<(i64, i64, Option<u32>, NameId)> = Vec::new();
        self.base.store.blocks::<PythonFrames>(process, |block| {
            for row in 0..block.start_ns.len() {
                let start = block.start_ns[row].0;
                let end = start.saturating_add(block.duration_ns[row].0);
                if block.thread[row] == thread && start <= at && at < end {
                    around.push((start, end, block.number[row], block.name[row]));
                }
            }
        });
        // Of two that begin together the longer holds the other, of equal ones the one with the smaller number, and then the
        // first in the table.
        around.sort_by_key(|(start, end, number, _)| (*start, Reverse(*end), *number));
        around.into_iter().rev().map(|(.., name)| name).collect()
    }

    fn operator_of(&self, around: &Around) -> Option<OperatorOf> {
        let Around { operator, .. } = around;
        let slices = self.rows.slices(around.row)?;
        let text = |name: Option<NameId>| name.map(|name| cut(self.recorded().get(name)));
        Some(OperatorOf {
            name: names::cut(self.recorded().get(operator.name).to_owned()),
            input_dims: text(operator.input_dims),
            input_types: text(operator.input_types),
            reference: self.reference(around.row, slices, around.place),
        })
    }
}

/// A text without what is beyond [`MOST_CHARACTERS`].
pub(crate) fn cut(text: &str) -> String {
    names::shortened(text.to_owned(), MOST_CHARACTERS)
}
