//! Tables that fit the terminal.

use std::cell::RefCell;
use std::collections::HashSet;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use crate::text::{one_line, thousands, wrap};

/// The width where there is no terminal to ask, and COLUMNS does not say it.
const DEFAULT_WIDTH: usize = 110;
/// Rows of a table, and lines of a list, that are printed: a file can have a hundred thousand devices.
pub const MOST_PRINTED: usize = 100;

/// The line for what is not printed.
pub fn and_more(left_out: usize) -> String {
    format!("... and {} more: --json has all", thousands(left_out as u64))
}

/// Columns of the terminal. Into a pipe or a file they are those of COLUMNS, as for other tools.
pub fn terminal_width() -> usize {
    let said = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal_size::terminal_size()
        .map(|(width, _)| usize::from(width.0))
        .or_else(said)
        .unwrap_or(DEFAULT_WIDTH)
        .max(40)
}

/// A table that fits the width: headings, then rows, all but the first column to the right.
fn table(headings: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(Cell::new));
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What becomes of columns that the terminal has no room for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// A second table, with the first columns again that tell its rows apart.
    Continue,
    /// Left out: the JSON has them.
    Drop,
}

/// How many of the first columns tell all rows apart, if they leave room for others; at least one.
fn key_columns(rows: &[Vec<String>], widths: &[usize], width: usize) -> usize {
    let distinct = |columns: &usize| {
        let mut seen = HashSet::new();
        rows.iter().all(|row| seen.insert(&row[..*columns]))
    };
    let fit = |columns: &usize| widths[..*columns].iter().sum::<usize>() <= width * 2 / 3;
    (1..widths.len()).take_while(fit).find(distinct).unwrap_or(1)
}

thread_local! {
    /// What stands behind each title.
    static BESIDE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Prints with this behind the title of each table, in brackets: what its numbers are of, where that is not all.
pub fn beside<T>(words: Option<String>, print: impl FnOnce() -> T) -> T {
    let before = BESIDE.replace(words);
    let printed = print();
    BESIDE.set(before);
    printed
}

/// A title with what stands behind it.
pub fn titled(title: &str) -> String {
    BESIDE.with_borrow(|words| match words {
        Some(words) => format!("{title} ({words})"),
        None => title.to_owned(),
    })
}

/// Prints a table whole where it fits, and else as many columns as do.
pub fn print_table(title: &str, headings: &[&str], rows: &[Vec<String>], overflow: Overflow) {
    let left_out = rows.len().saturating_sub(MOST_PRINTED);
    // A name of a trace must not begin a line of its own, nor speak to the terminal.
    let rows: Vec<Vec<String>> = rows[..rows.len() - left_out]
        .iter()
        .map(|row| row.iter().map(|cell| one_line(cell)).collect())
        .collect();
    let rows = &rows;
    let width = terminal_width();
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            // A space on either side of each cell.
            cells.chain([headings[column].chars().count()]).max().unwrap_or(0) + 2
        })
        .collect();
    let keys = key_columns(rows, &widths, width);
    let mut first = keys;
    let mut title = Some(titled(title));
    while first < headings.len() {
        let mut used: usize = widths[..keys].iter().sum();
        let mut last = first;
        while last < headings.len() && (last == first || used + widths[last] <= width) {
            used += widths[last];
            last += 1;
        }
        let columns: Vec<usize> = (0..keys).chain(first..last).collect();
        let part_headings: Vec<&str> = columns.iter().map(|&column| headings[column]).collect();
        let part_rows = rows
            .iter()
            .map(|row| columns.iter().map(|&column| row[column].clone()).collect())
            .collect();
        if let Some(title) = title.take() {
            anstream::println!("\n{}", wrap(&title, width).join("\n"));
        }
        anstream::println!("{}", table(&part_headings, part_rows).trim_fmt());
        if left_out > 0 {
            anstream::println!(" {}", and_more(left_out));
        }
        if overflow == Overflow::Drop {
            return;
        }
        first = last;
    }
}
