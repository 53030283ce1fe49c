//! The `args` of operators: shapes and types of inputs, and what joins an operator to its backward pass.

use super::number::integer;
use super::scan::{Cursor, Go, Raw, RawText, members};

/// What PyTorch says of an operator (torch/csrc/profiler/collection.cpp and kineto_shim.cpp, 2026-08), as it stands there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OperatorArgs<'a> {
    pub(crate) input_dims: Option<RawText<'a>>,
    pub(crate) input_types: Option<RawText<'a>>,
    /// Only of operators whose work other inputs than tensors decide: the values of all others are as many as calls.
    pub(crate) input_values: Option<RawText<'a>>,
    pub(crate) sequence: Option<u32>,
    pub(crate) forward_thread: Option<u32>,
    pub(crate) number: Option<u32>,
    /// What stands in it is no JSON.
    pub(crate) damaged: bool,
}

/// A list; some writers put it between quotes.
fn list(value: Raw<'_>) -> Option<RawText<'_>> {
    match value {
        Raw::Nested(bytes) if bytes.first() == Some(&b'[') => Some(RawText {
            bytes,
            escaped: false,
        }),
        Raw::Text(text) if text.bytes.first() == Some(&b'[') => Some(text),
        _ => None,
    }
}

/// A number that counts operators, calls or threads: none is negative, nor of more than 32 bits.
fn number(value: Raw<'_>) -> Option<u32> {
    match value {
        Raw::Scalar(bytes) | Raw::Text(RawText { bytes, .. }) => u32::try_from(integer(bytes)?).ok(),
        Raw::Nested(_) => None,
    }
}

/// Whether the work of an operator of this name depends on more than the sizes of its tensors: which gradients are wanted, how
/// far a window moves, what is masked.
pub(crate) fn needs_values(name: &[u8]) -> bool {
    let has = |word: &[u8]| memchr::memmem::find(name, word).is_some();
    has(b"conv") || has(b"attention")
}

impl<'a> OperatorArgs<'a> {
    /// Reads the `args` of the operator `name`. Members that are not as expected are as good as absent.
    pub(crate) fn read(object: Option<&'a [u8]>, name: &[u8]) -> Self {
        let mut args = Self::default();
        let Some(object) = object else {
            return args;
        };
        let read = members(&mut Cursor::new(object), |key, value| {
            match key {
                b"Input Dims" | b"Input dims" => args.input_dims = list(value),
                b"Input type" | b"Input Types" => args.input_types = list(value),
                b"Concrete Inputs" if needs_values(name) => args.input_values = list(value),
                b"External id" => args.number = number(value),
                b"Sequence number" => args.sequence = number(value),
                b"Fwd thread id" => args.forward_thread = number(value).filter(|thread| *thread > 0),
                _ => {}
            }
            Go::On
        });
        args.damaged = read.is_err();
        args
    }
}

/// PyTorch's number of a Python function's call.
pub(crate) fn python_id(object: Option<&[u8]>) -> Option<u32> {
    let mut id = None;
    let _ = members(&mut Cursor::new(object?), |key, value| {
        if key == b"Python id" {
            id = number(value);
            return Go::Enough;
        }
        Go::On
    });
    id
}

/// A list as Python's `json.dumps` writes it: a blank after each comma, and no other outside of strings. So lists that are equal
/// have one text, whoever wrote them.
pub(crate) fn tidy(list: &[u8]) -> Vec<u8> {
    let mut tidied = Vec::with_capacity(list.len() + list.len() / 8);
    let (mut in_text, mut after_backslash) = (false, false);
    for &byte in list {
        if in_text {
            in_text = byte != b'"' || after_backslash;
            after_backslash = byte == b'\\' && !after_backslash;
            tidied.push(byte);
            continue;
        }
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => {}
            b',' => tidied.extend_from_slice(b", "),
            _ => {
                in_text = byte == b'"';
                tidied.push(byte);
            }
        }
    }
    tidied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_types_and_what_joins_the_backward_pass_are_read() {
        let args = OperatorArgs::read(
            Some(br#"{"External id": 7, "Sequence number": 12, "Fwd thread id": 1, "Input Dims": [[2, 3], []], "Input type": ["float", ""], "Concrete Inputs": ["", "1"]}"#),
            b"aten::mm",
        );
        let text = |raw: Option<RawText<'static>>| raw.map(|raw| raw.bytes);
        assert_eq!(text(args.input_dims), Some(b"[[2, 3], []]".as_slice()));
        assert_eq!(text(args.input_types), Some(b"[\"float\", \"\"]".as_slice()));
        assert_eq!((args.sequence, args.forward_thread), (Some(12), Some(1)));
        assert!(args.input_values.is_none() && !args.damaged);
    }

    #[test]
    fn lists_are_tidied_as_pythons_json_writes_them() {
        assert_eq!(
            tidy(b"[[2,3],\n  [ ],[\"a, b\\\" ,c\" , \"\"]]"),
            b"[[2, 3], [], [\"a, b\\\" ,c\", \"\"]]"
        );
        assert_eq!(tidy(b"[[2, 3], []]"), b"[[2, 3], []]");
    }

    #[test]
    fn what_is_no_list_is_not_taken_for_one() {
        let read = |text: &'static [u8]| OperatorArgs::read(Some(text), b"aten::convolution");
        let args = read(br#"{"Input Dims": 5, "Input type": {}, "Sequence number": -1, "Fwd thread id": 0}"#);
        assert!(args.input_dims.is_none() && args.input_types.is_none());
        assert_eq!((args.sequence, args.forward_thread), (None, None));
        let args = read(br#"{"Input Dims": "[[1, 2]]", "Concrete Inputs": ["[1, 1]", "False"]}"#);
        assert_eq!(args.input_dims.map(|raw| raw.bytes), Some(b"[[1, 2]]".as_slice()));
        assert!(args.input_values.is_some());
        assert!(read(b"{\"Input Dims\": [").damaged);
    }
}
