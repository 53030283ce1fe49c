//! The path of the function that a kernel's name is of, in what compilers and tools make of it: mangled or not, with return type,
//! template arguments and parameters, lambdas, operators and whatever else C++ puts between brackets.

use std::borrow::Cow;
use std::fmt;

/// The longest demangled name that is worth waiting for: back references let a short one stand for gigabytes.
const LONGEST: usize = 1 << 16;

/// A name as its author wrote it, without the `.kd` that ROCm puts after it.
#[must_use]
pub fn demangled(name: &str) -> Cow<'_, str> {
    struct Bounded(String);
    impl fmt::Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.push_str(text);
            (self.0.len() <= LONGEST).then_some(()).ok_or(fmt::Error)
        }
    }
    let name = name.split(" [clone ").next().unwrap_or(name).trim();
    let name = name.strip_suffix(".kd").unwrap_or(name);
    if !name.starts_with("_Z") || name.len() > LONGEST {
        return Cow::Borrowed(name);
    }
    let mut text = Bounded(String::new());
    let options = cpp_demangle::DemangleOptions::new();
    match cpp_demangle::Symbol::new(name).map(|symbol| symbol.structured_demangle(&mut text, &options)) {
        Ok(Ok(())) => Cow::Owned(text.0),
        _ => Cow::Borrowed(name),
    }
}

/// A function of the host as its author wrote it, by its name in a symbol table: C++'s without return type, arguments of templates,
/// parameters and anonymous namespaces, Rust's without the hash.
pub(crate) fn host_function(name: &str) -> String {
    let is_rust = name.starts_with("_R") || name.starts_with("_ZN") && name.contains("17h");
    if is_rust
        && name.len() <= LONGEST
        && let Ok(rust) = rustc_demangle::try_demangle(name)
    {
        return format!("{rust:#}");
    }
    let text = demangled(name);
    if matches!(text, Cow::Borrowed(_)) {
        return name.to_owned();
    }
    let path: Vec<&str> = path(&text).iter().map(|segment| segment.name).collect();
    if path.is_empty() {
        return text.into_owned();
    }
    path.join("::")
}

/// A part of a path: `dispatch<8>` has the name `dispatch` and the arguments `<8>`.
pub(super) struct Segment<'a> {
    pub name: &'a str,
    pub arguments: &'a str,
}

impl Segment<'_> {
    /// Whether the name says anything by itself, as that of a lambda or of an operator does not.
    pub fn is_telling(&self) -> bool {
        !self.name.starts_with(['{', '[', '\'', '<']) && !is_operator(self.name)
    }
}

/// The path of the function that a demangled name is of, anonymous namespaces left out.
pub(super) fn path(text: &str) -> Vec<Segment<'_>> {
    let mut path = Vec::new();
    let mut rest = text;
    loop {
        let (name, after) = rest.split_at(identifier_len(rest));
        let after = &after[leading_group(after, "[abi:")..];
        let after = &after[usize::from(is_operator(name) && after.starts_with(" <"))..];
        let (arguments, after) = after.split_at(leading_group(after, "<"));
        if !name.is_empty() && !starts_with_any(name, &["(anonymous ", "<unnamed", "{anonymous"]) {
            path.push(Segment { name, arguments });
        }
        let after = &after[if name == "decltype" {
            leading_group(after, "(")
        } else {
            0
        }..];
        // Some tools put a space before the parameters; a pointer to a function has one as well.
        let spaced = after.strip_prefix(' ').unwrap_or(after);
        let is_spaced = spaced.starts_with('(') && !starts_with_any(spaced, &["(anonymous ", "(*"]);
        if is_spaced {
            let next = &spaced[group_len(spaced)..];
            // What comes next is local to this function.
            match next.strip_prefix(" const").unwrap_or(next).strip_prefix("::") {
                Some(inner) => rest = inner,
                None => return path,
            }
        } else if let Some(inner) = after.strip_prefix("::") {
            rest = inner;
        } else {
            // What came before the space was a return type.
            match after.split_once(' ').map(|(_, next)| next.trim_start()) {
                Some(next) if !next.is_empty() => rest = next,
                _ => return path,
            }
            path.clear();
        }
    }
}

/// The first of `<int, float>`.
pub(super) fn first_argument(arguments: &str) -> &str {
    let inner = arguments.strip_prefix('<').unwrap_or("");
    let mut end = 0;
    while let Some(at) = inner[end..].find(['<', '(', '{', '[', ',', '>']) {
        end += at;
        if inner[end..].starts_with([',', '>']) {
            return &inner[..end];
        }
        end += group_len(&inner[end..]);
    }
    inner
}

/// The length of the identifier that `text` begins with, which may be `operator()` or `{lambda(int)#1}`.
fn identifier_len(text: &str) -> usize {
    if starts_with_any(text, &["(anonymous ", "<unnamed", "<lambda", "{", "["]) {
        return group_len(text);
    }
    if is_operator(text) {
        let after = &text["operator".len()..];
        let len = match symbol_len(after) {
            // A conversion, `operator bool`.
            0 => after.find('(').unwrap_or(after.len()),
            len => len,
        };
        return "operator".len() + len;
    }
    let ends = |(at, c): &(usize, char)| "<>(){}[] ,*&".contains(*c) || text[*at..].starts_with("::");
    text.char_indices().find(ends).map_or(text.len(), |(at, _)| at)
}

fn is_operator(text: &str) -> bool {
    text.starts_with("operator") && !text["operator".len()..].starts_with(is_of_word)
}

pub(super) fn starts_with_any(text: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| text.starts_with(start))
}

pub(super) fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of what names an operator, `()` or `<<`: none for ` bool`.
fn symbol_len(after: &str) -> usize {
    if starts_with_any(after, &["()", " ()", "[]", " []"]) {
        return after.find([')', ']']).map_or(0, |end| end + 1);
    }
    let run = after.len() - after.trim_start_matches(|c| "<>=!+-*/%^&|~,".contains(c)).len();
    // A `<` after another symbol begins template arguments: `operator==<int>`.
    let arguments = |at: &usize| after[*at..].starts_with('<') && !after[..*at].ends_with('<');
    (1..run).find(arguments).unwrap_or(run)
}

/// The length of the group in brackets that `text` begins with, where it begins with `start`.
fn leading_group(text: &str, start: &str) -> usize {
    if text.starts_with(start) {
        group_len(text)
    } else {
        0
    }
}

/// The length of the group in brackets that `text` begins with: all of it where the brackets do not close.
fn group_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut open = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[..at].ends_with(b"::operator") && text.is_char_boundary(at) {
            at += symbol_len(&text[at..]);
        }
        let Some(byte) = bytes.get(at) else { break };
        if b"<([{".contains(byte) {
            open.push(*byte);
        }
        let opening = match byte {
            b'>' if open.last() == Some(&b'<') && !bytes[..at].ends_with(b"-") => Some(b'<'),
            b')' => Some(b'('),
            b']' => Some(b'['),
            b'}' => Some(b'{'),
            _ => None,
        };
        at += 1;
        // A `<` that is still open inside of parentheses was a comparison.
        if let Some(depth) = open.iter().rposition(|bracket| Some(*bracket) == opening) {
            open.truncate(depth);
            if open.is_empty() {
                return at;
            }
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_host_are_called_as_their_authors_wrote_them() {
        for (symbol, name) in [
            ("main", "main"),
            ("_ZN2at4_ops2mm4callERKNS_6TensorES4_", "at::_ops::mm::call"),
            ("_ZN12_GLOBAL__N_14stepILi3EEEvi", "step"),
            ("_ZZN3foo3barEvENKUlvE_clEv", "foo::bar::{lambda()#1}::operator()"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            (
                "_RNvNtCsgEmfK2I1SDS_4core9panicking14panic_nounwind",
                "core::panicking::panic_nounwind",
            ),
            ("_Znot mangled", "_Znot mangled"),
        ] {
            assert_eq!(host_function(symbol), name);
        }
    }
}
