//! Lists of sentences.

use super::table::{MOST_PRINTED, and_more, terminal_width, titled};
use crate::text::{one_line, wrap};

/// Prints a title and lines under it, where there are any.
pub fn print_list(title: &str, mut lines: impl Iterator<Item = String>) {
    let width = terminal_width();
    for (index, line) in lines.by_ref().take(MOST_PRINTED).enumerate() {
        if index == 0 {
            anstream::println!("\n{}", titled(title));
        }
        for (part, text) in wrap(&one_line(&line), width.saturating_sub(4))
            .into_iter()
            .enumerate()
        {
            anstream::println!("{} {text}", if part == 0 { " -" } else { "  " });
        }
    }
    let left_out = lines.count();
    if left_out > 0 {
        anstream::println!(" - {}", and_more(left_out));
    }
}
