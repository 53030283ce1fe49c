//! Numbers as people read them.

pub use gputrace_analyzer::units::{bytes, duration, gigabytes_per_second, thousands};

/// Stands above every number of a simulated run.
pub const SIMULATED: &str = "SIMULATED GPUs: device times are modelled, not measured.";

/// A ratio as a percentage, a dash where it is not known.
pub fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
}

/// Text of a trace for one line of a terminal: control characters, line breaks and marks that turn the direction of writing
/// replaced.
pub fn one_line(text: &str) -> String {
    let speaks = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(speaks) {
        text.replace(speaks, "\u{fffd}")
    } else {
        text.to_owned()
    }
}

/// Text cut to `width` characters, with an ellipsis where something was cut.
pub fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Text cut to `width` characters in its middle: of paths of functions the end says most.
pub fn shorten_middle(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (first, last) = (kept / 3, kept - kept / 3);
    let begin: String = text.chars().take(first).collect();
    let end: String = text.chars().skip(count - last).collect();
    format!("{begin}…{end}")
}

/// Text broken into lines of at most `width` characters, at spaces; a longer word stands alone.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_text_stays() {
        assert_eq!(shorten_middle("gpu::launch", 11), "gpu::launch");
        assert_eq!(shorten_middle("workloads::gpu::launch", 12), "wor…::launch");
        assert_eq!(shorten_middle("launch", 1), "…");
    }

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible", 8), ["incomprehensible"]);
    }

    #[test]
    fn long_names_are_cut_at_characters() {
        assert_eq!(shorten("abcdef", 4), "abc…");
        assert_eq!(shorten("äöü", 3), "äöü");
    }
}
