//! Operators and modules in the texts of NVTX ranges: what `torch.autograd.profiler.emit_nvtx` writes, and our own package for
//! Python (`python/`) in the same words.
//!
//! PyTorch's texts are made by `getNvtxStr`: NAME[, seq = N][, op_id = N][, sizes = [[2, 3], []]][, input_op_ids = [(7,0)]]
//! (torch/csrc/profiler/util.cpp and standalone/nvtx_observer.cpp of PyTorch 2). Versions 1.0 to 1.11 write no ids
//! (torch/csrc/autograd/profiler.cpp, then profiler_legacy.cpp): "aten::mm, seq = 5, sizes = [[2, 3], [3, 4]]", or "aten::add"
//! alone. Our package adds ", types = ["float", ""]" and ", fwd_thread = N".
//!
//! A range is only taken for PyTorch's if its text is surely no other program's. Each text with ids in it occurs once, so that
//! taking it apart also keeps names few.

use super::names::{begins_backward, is_of_backward, module_name};
use crate::step_names::step_word;

/// What PyTorch says by a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range<'a> {
    /// An operator.
    Operator(OperatorRange<'a>),
    /// A module while it ran forward, by its whole text: "nn.Module: Linear_3".
    Module(&'a str),
    /// A range of the program's own (`torch.profiler.record_function`), by what the program calls it: "step 3".
    Own(&'a str),
}

impl<'a> Range<'a> {
    /// What it is called: the text without what is said of it.
    #[must_use]
    pub fn name(&self) -> &'a str {
        match self {
            Self::Operator(operator) => operator.name,
            Self::Module(name) | Self::Own(name) => name,
        }
    }
}

/// An operator, as a range has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperatorRange<'a> {
    /// Its name.
    pub name: &'a str,
    /// The sizes of its inputs, a list in JSON.
    pub input_dims: Option<&'a str>,
    /// Their types, likewise.
    pub input_types: Option<&'a str>,
    /// Autograd's number.
    pub sequence: Option<u32>,
    /// Of an operator of the backward pass: PyTorch's number of the forward operator's thread, or 0 where the text does not say.
    pub forward_thread: Option<u32>,
    /// PyTorch's number of the operator.
    pub number: Option<u32>,
}

/// Namespaces whose operators are known without anything behind the name. Others have to show that PyTorch wrote them.
const NAMESPACES: [&str; 10] = [
    "aten",
    "prim",
    "prims",
    "quantized",
    "mkldnn",
    "torchvision",
    "c10d",
    "c10d_functional",
    "_c10d_functional",
    "torch::autograd",
];
/// Operators without a namespace or a sequence number (torch/csrc/distributed/c10d/ParamCommsUtils.hpp,
/// torch/csrc/autograd/VariableTypeManual.cpp), and what those begin with that torch.compile made.
const OPERATORS: [&str; 3] = ["record_param_comms", "detach", "detach_"];
const COMPILED: [&str; 2] = ["Torch-Compiled Region", "triton_"];
/// Ranges that process groups make of their own (torch/csrc/distributed/c10d/Work.cpp): they have sizes and are no operators.
const PROCESS_GROUPS: [&str; 4] = ["nccl:", "gloo:", "mpi:", "ucc:"];
/// Lists in lists: an operator's inputs, tensors of an input, sizes of a tensor.
const DEEPEST: u8 = 3;

/// What PyTorch says by a push/pop range with this text in the default domain; `None` of any other text.
#[must_use]
pub fn range(text: &[u8]) -> Option<Range<'_>> {
    // Most texts of others end here: no comma, no colon.
    let end = text.iter().position(|byte| matches!(byte, b',' | b':'))?;
    let end = match text[end] {
        b',' => end,
        _ => (text[end..].iter().position(|byte| *byte == b',')).map_or(text.len(), |after| end + after),
    };
    let name = std::str::from_utf8(&text[..end]).ok()?;
    if end == text.len() {
        return plain(name);
    }
    let fields = Fields::read(&text[end..])?;
    let is_namespaced = is_namespaced(name) || begins_backward(name);
    // What was cut off is only missing where the name alone says whose it is.
    if name.is_empty() || fields.is_damaged && !is_namespaced {
        return None;
    }
    let (has_sequence, has_number, has_dims) = (
        fields.has_sequence,
        fields.has_number,
        fields.input_dims.is_some(),
    );
    let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    let is_known = OPERATORS.contains(&name) || begins(&COMPILED);
    let is_own = step_word(name.as_bytes()).is_some()
        || begins(&PROCESS_GROUPS)
        || !is_namespaced && !has_sequence && !has_dims && !is_known;
    if is_own {
        return has_number.then_some(Range::Own(name));
    }
    // Only PyTorch has two of them, or autograd's names.
    if !is_namespaced && !has_number && !(has_sequence && (has_dims || is_of_backward(name))) {
        return None;
    }
    Some(Range::Operator(OperatorRange {
        name,
        input_dims: fields.input_dims,
        input_types: fields.input_types,
        sequence: fields.sequence,
        forward_thread: is_of_backward(name).then_some(fields.forward_thread.unwrap_or(0)),
        number: fields.number,
    }))
}

/// Of a text with nothing behind the name.
fn plain(name: &str) -> Option<Range<'_>> {
    if let Some(module) = module_name(name) {
        let (class, number) = module.rsplit_once('_')?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        return (is_number && !class.is_empty()).then_some(Range::Module(name));
    }
    let (namespace, _) = name.rsplit_once("::")?;
    let is_known = begins_backward(name) || is_namespaced(name) && NAMESPACES.contains(&namespace);
    is_known.then(|| {
        Range::Operator(OperatorRange {
            name,
            forward_thread: is_of_backward(name).then_some(0),
            ..OperatorRange::default()
        })
    })
}

/// Whether a name is one of C++ or of the dispatcher, in a namespace: "aten::mm".
fn is_namespaced(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'<' | b'>');
    let has_namespace = name.find("::").is_some_and(|at| at > 0 && at + 2 < name.len());
    has_namespace && name.bytes().all(is_word)
}

/// What stands behind a name.
#[derive(Default)]
struct Fields<'a> {
    input_dims: Option<&'a str>,
    input_types: Option<&'a str>,
    has_sequence: bool,
    sequence: Option<u32>,
    forward_thread: Option<u32>,
    has_number: bool,
    number: Option<u32>,
    /// A field is not as PyTorch writes it: texts are cut where they are too long.
    is_damaged: bool,
}

impl<'a> Fields<'a> {
    /// Reads ", KEY = VALUE" until the end; `None` for anything else.
    fn read(mut rest: &'a [u8]) -> Option<Self> {
        let mut fields = Self::default();
        while !rest.is_empty() {
            let at = rest.iter().position(|byte| *byte == b'=')?;
            let key = rest[..at].strip_prefix(b", ")?.strip_suffix(b" ")?;
            let value = rest[at + 1..].strip_prefix(b" ").unwrap_or_default();
            let length = match key {
                b"seq" | b"op_id" | b"fwd_thread" => number(value),
                b"sizes" => sizes(value),
                b"types" => types(value),
                b"input_op_ids" => value.iter().position(|byte| *byte == b']').map(|end| end + 1),
                _ => return None,
            };
            let Some(length) = length else {
                fields.is_damaged = true;
                break;
            };
            let text = std::str::from_utf8(&value[..length]).ok()?;
            match key {
                b"seq" => (fields.has_sequence, fields.sequence) = (true, text.parse().ok()),
                b"op_id" => (fields.has_number, fields.number) = (true, text.parse().ok()),
                b"fwd_thread" => fields.forward_thread = text.parse().ok(),
                b"sizes" => fields.input_dims = Some(text),
                b"types" => fields.input_types = Some(text),
                // Which operators made the inputs: nobody asks.
                _ => {}
            }
            rest = &value[length..];
        }
        Some(fields)
    }
}

/// How long the number is that a text begins with.
fn number(text: &[u8]) -> Option<usize> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (length > 0).then_some(length)
}

/// How long the list of lists of numbers is that a text begins with, spaced as in "[[2, 3], []]".
fn sizes(text: &[u8]) -> Option<usize> {
    let (mut depth, mut last) = (0, b',');
    for (at, byte) in text.iter().enumerate() {
        let fits = match byte {
            b'[' => matches!(last, b'[' | b' ') || at == 0,
            b'-' => matches!(last, b'[' | b' '),
            b'0'..=b'9' => matches!(last, b'[' | b' ' | b'-' | b'0'),
            b',' => matches!(last, b'0' | b']'),
            b' ' => last == b',' && at > 0,
            b']' => matches!(last, b'[' | b'0' | b']'),
            _ => false,
        };
        depth += u8::from(*byte == b'[');
        if !fits || depth == 0 || depth > DEEPEST {
            return None;
        }
        depth -= u8::from(*byte == b']');
        if depth == 0 {
            return Some(at + 1);
        }
        last = if byte.is_ascii_digit() { b'0' } else { *byte };
    }
    None
}

/// How long the list of texts is that a text begins with, as in "["float", ""]". None of them needs escaping.
fn types(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    if text.first() != Some(&b'[') {
        return None;
    }
    if text.get(at) == Some(&b']') {
        return Some(2);
    }
    loop {
        let is_plain = |byte: &&u8| !matches!(byte, b'"' | b'\\' | 0..=31);
        if text.get(at) != Some(&b'"') {
            return None;
        }
        at += 1 + text[at + 1..].iter().take_while(is_plain).count();
        match text.get(at..)? {
            [b'"', b']', ..] => return Some(at + 2),
            [b'"', b',', b' ', ..] => at += 3,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn operator(text: &str) -> OperatorRange<'_> {
        match range(text.as_bytes()) {
            Some(Range::Operator(operator)) => operator,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn operators_are_read_as_each_version_of_pytorch_writes_them() {
        let mm = OperatorRange {
            name: "aten::mm",
            input_dims: Some("[[2, 3], [3, 4]]"),
            sequence: Some(5),
            ..OperatorRange::default()
        };
        let with_id = OperatorRange {
            number: Some(117),
            ..mm
        };
        // 2.x with record_shapes, 2.x without, 1.7 with and without, and our own package's.
        let newest =
            "aten::mm, seq = 5, op_id = 117, sizes = [[2, 3], [3, 4]], input_op_ids = [(0,-1), (99,0)]";
        assert_eq!(operator(newest), with_id);
        let without = OperatorRange {
            input_dims: None,
            ..with_id
        };
        assert_eq!(operator("aten::mm, seq = 5, op_id = 117"), without);
        assert_eq!(operator("aten::mm, seq = 5, sizes = [[2, 3], [3, 4]]"), mm);
        assert_eq!(operator("aten::mm").name, "aten::mm");
        let typed = OperatorRange {
            input_types: Some("[\"c10::BFloat16\", \"\"]"),
            ..mm
        };
        let text = "aten::mm, seq = 5, sizes = [[2, 3], [3, 4]], types = [\"c10::BFloat16\", \"\"]";
        assert_eq!(operator(text), typed);
        // Before 1.7 operators had no namespace.
        assert_eq!(operator("mm, seq = 5, sizes = [[2, 3], [3, 4]]").name, "mm");
        assert_eq!(operator("vllm::unified_attention, op_id = 3").number, Some(3));
        assert_eq!(
            operator("record_param_comms, op_id = 3").name,
            "record_param_comms"
        );
        assert_eq!(
            operator("Torch-Compiled Region: 0/0, op_id = 3").name,
            "Torch-Compiled Region: 0/0"
        );
        assert_eq!(
            operator("triton_poi_fused_relu_0, op_id = 3").name,
            "triton_poi_fused_relu_0"
        );
        assert_eq!(
            operator("MyFunction, seq = 7, op_id = 3").forward_thread,
            None,
            "a function that a program defines"
        );
    }

    #[test]
    fn the_backward_pass_is_told_from_the_forward_pass() {
        let evaluate = operator("autograd::engine::evaluate_function: MmBackward0, seq = 5, op_id = 130");
        assert_eq!(evaluate.name, "autograd::engine::evaluate_function: MmBackward0");
        assert_eq!((evaluate.sequence, evaluate.forward_thread), (Some(5), Some(0)));
        let node = operator("MmBackward0, seq = 5, op_id = 131, sizes = [[2, 4]]");
        assert_eq!((node.sequence, node.forward_thread), (Some(5), Some(0)));
        let node = operator("MmBackward0, seq = 5, sizes = [[2, 4]], fwd_thread = 2");
        assert_eq!(node.forward_thread, Some(2));
        let copied = operator("torch::autograd::CopySlices, seq = 6, op_id = 132");
        assert_eq!((copied.sequence, copied.forward_thread), (Some(6), Some(0)));
        // Operators in it, and forward ones called alike.
        for text in [
            "aten::mm, op_id = 133",
            "aten::_softmax_backward_data, seq = 5, op_id = 133",
        ] {
            assert_eq!(operator(text).forward_thread, None, "{text}");
        }
    }

    #[test]
    fn modules_are_those_that_are_called_so_and_counted() {
        assert_eq!(
            range(b"nn.Module: Linear_0"),
            Some(Range::Module("nn.Module: Linear_0"))
        );
        assert_eq!(
            range("nn.Module: My_Netz\u{e4}_12".as_bytes()),
            Some(Range::Module("nn.Module: My_Netz\u{e4}_12"))
        );
        for other in [
            "nn.Module: ",
            "nn.Module: Linear",
            "nn.Module: Linear_",
            "nn.Module: _3x",
            "nn.Module: _3",
        ] {
            assert_eq!(range(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn ranges_of_the_program_stay_its_own_without_pytorchs_number() {
        for (text, name) in [
            ("step 3, op_id = 9", "step 3"),
            ("ProfilerStep#3, op_id = 9", "ProfilerStep#3"),
            ("forward, op_id = 9", "forward"),
            ("Optimizer.step#SGD.step, op_id = 9", "Optimizer.step#SGD.step"),
            ("detach the graph, op_id = 9", "detach the graph"),
            ("nccl:all_reduce, op_id = 9, sizes = [[5]]", "nccl:all_reduce"),
        ] {
            assert_eq!(range(text.as_bytes()), Some(Range::Own(name)), "{text}");
        }
    }

    #[test]
    fn what_is_not_surely_pytorchs_is_not_taken() {
        for other in [
            "",
            "step 3",
            "forward",
            "ProfilerStep#3",
            "backward: layer 3, part 2",
            "Backward",
            "batch, seq = 5",
            "load, sizes = [[2]]",
            "std::vector::push_back",
            "torch::nn::Linear",
            "my::range",
            "aten::",
            "::mm",
            "::",
            ":",
            ",",
            ", ",
            ", seq = 5",
            ", sizes = [[2]]",
            "aten::mm and more",
            "aten::mm, and more",
            "aten::mm, x = 5",
            "aten::mm, seq=5",
            "a [bracket], sizes = [[2]",
            "https://host/path",
            "epoch 3, lr = 0.1",
        ] {
            assert_eq!(range(other.as_bytes()), None, "{other}");
        }
        assert_eq!(range(b"aten::\xff, op_id = 5"), None);
    }

    #[test]
    fn lists_are_taken_whole_or_not_at_all() {
        for (list, is_one) in [
            ("[]", true),
            ("[[]]", true),
            ("[[], [2], [], [3, 40, 500]]", true),
            ("[[[2, 3], [4]], [], [-1]]", true),
            ("[[[[2]]]]", false),
            ("[[2,3]]", false),
            ("[[2 3]]", false),
            ("[2, 3", false),
            ("[[2], ]", false),
            ("[[2]]]", false),
            ("[[2, x]]", false),
            ("", false),
            ("]", false),
            ("5", false),
            ("[ [2]]", false),
            ("[[-]]", false),
        ] {
            assert_eq!(sizes(list.as_bytes()) == Some(list.len()), is_one, "{list}");
        }
        for (list, is_one) in [
            ("[]", true),
            ("[\"\"]", true),
            ("[\"float\", \"\", \"Scalar\"]", true),
            ("[\"a\\\"\"]", false),
            ("[\"a\",\"b\"]", false),
            ("[\"a\"", false),
            ("[\"a", false),
            ("[", false),
            ("[a]", false),
        ] {
            assert_eq!(types(list.as_bytes()) == Some(list.len()), is_one, "{list}");
        }
    }

    #[test]
    fn of_what_was_cut_off_the_name_and_the_numbers_are_left() {
        let dims = format!("[{}]", vec!["[4096, 4096]"; 700_000].join(", "));
        let text = format!("aten::_foreach_add_, op_id = 7, sizes = {dims}");
        assert!(text.len() > 9 << 20);
        assert_eq!(operator(&text).input_dims, Some(&*dims));
        let cut = operator(&text[..128 << 10]);
        assert_eq!(
            (cut.name, cut.number, cut.input_dims),
            ("aten::_foreach_add_", Some(7), None)
        );
        let huge = operator("aten::mm, seq = 99999999999999999999, op_id = 5000000000");
        assert_eq!((huge.sequence, huge.number), (None, None));
        for long in ["x", "[", ":", ",", ", seq = "] {
            assert_eq!(
                range(long.repeat((10 << 20) / long.len()).as_bytes()),
                None,
                "{long}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(aten::mm|MmBackward0|step 3|[a-z:, ]{0,9}|)(, (seq|op_id|sizes|types|input_op_ids|fwd_thread) = [\\[\\]0-9,() \"-]{0,12}){0,4}") {
            if let Some(Range::Operator(operator)) = range(text.as_bytes()) {
                prop_assert!(text.starts_with(operator.name) && !operator.name.is_empty());
            }
        }

        #[test]
        fn whatever_sizes_there_are_come_back(shapes in proptest::collection::vec(proptest::collection::vec(0u64..9999, 0..4), 0..5), sequence: u32, id in 1u32..) {
            let dims = serde_json::to_string(&shapes).expect("JSON").replace(',', ", ");
            let text = format!("MulBackward0, seq = {sequence}, op_id = {id}, sizes = {dims}, input_op_ids = [(0,-1)]");
            let read = operator(&text);
            prop_assert_eq!((read.sequence, read.number, read.input_dims), (Some(sequence), Some(id), Some(&*dims)));
        }
    }
}
