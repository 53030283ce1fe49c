//! What Kineto says of an operator: shapes and types of its inputs, and what joins it to its backward pass.

use gputrace_trace::tables::Operators;
use gputrace_trace::{Interner, NameId};
use rustc_hash::FxHashMap;
use serde::de::IgnoredAny;

use super::event::EventWriter;
use crate::kineto::operator_args::{needs_values, tidy};

/// The columns that are written as Kineto's members.
pub const COLUMNS: &[&str] = &[
    "input_dims",
    "input_types",
    "input_values",
    "sequence",
    "forward_thread",
    "number",
];

/// Which columns of an operator were written as Kineto's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    All,
    /// It is of the backward pass, and the forward operator's thread is not known: Kineto has no word for that.
    ButForwardThread,
    Nothing,
}

/// Writes the members of operators.
pub struct OperatorArgs<'r> {
    operators: &'r Operators,
    names: &'r Interner,
    /// Whether a list is one in JSON, as an importer would have it.
    known: FxHashMap<NameId, bool>,
}

impl<'r> OperatorArgs<'r> {
    pub fn new(operators: &'r Operators, names: &'r Interner) -> Self {
        Self {
            operators,
            names,
            known: FxHashMap::default(),
        }
    }

    fn is_list(&mut self, list: Option<NameId>) -> bool {
        let Some(list) = list else {
            return true;
        };
        *self.known.entry(list).or_insert_with(|| {
            let text = self.names.get(list);
            let is_json = serde_json::from_str::<Vec<IgnoredAny>>(text).is_ok();
            is_json && tidy(text.as_bytes()) == text.as_bytes()
        })
    }

    /// Writes the members of an operator; nothing where they would not be read back as they are.
    pub fn write(&mut self, row: usize, writer: &mut EventWriter<'_>) -> Written {
        let operators = self.operators;
        let (dims, types) = (operators.input_dims[row], operators.input_types[row]);
        let (values, number) = (operators.input_values[row], operators.number[row]);
        let (sequence, thread) = (operators.sequence[row], operators.forward_thread[row]);
        let name = self.names.get(operators.name[row]);
        let is_usual = values.is_none_or(|_| needs_values(name.as_bytes()))
            && [dims, types, values].into_iter().all(|list| self.is_list(list));
        if !is_usual {
            return Written::Nothing;
        }
        writer.maybe("External id", number);
        for (key, list) in [
            ("Input Dims", dims),
            ("Input type", types),
            ("Concrete Inputs", values),
        ] {
            if let Some(list) = list {
                writer.raw(key, self.names.get(list).as_bytes());
            }
        }
        writer.maybe("Sequence number", sequence);
        if thread == Some(0) {
            return Written::ButForwardThread;
        }
        writer.maybe("Fwd thread id", thread);
        Written::All
    }
}
