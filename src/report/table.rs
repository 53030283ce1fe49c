//! Tables that fit the terminal.

use crate::text::one_line;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

/// The width where there is no terminal to ask.
const DEFAULT_WIDTH: usize = 110;
/// Columns of the terminal.
pub fn terminal_width() -> usize {
    terminal_size::terminal_size()
        .map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0))
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
    /// A second table with the first column again.
    Continue,
    /// Left out: the JSON has them.
    Drop,
}

/// Prints a table whole where it fits, and else as many columns as do.
pub fn print_table(title: &str, headings: &[&str], rows: &[Vec<String>], overflow: Overflow) {
    // A name of a trace must not begin a line of its own, nor speak to the terminal.
    let rows: Vec<Vec<String>> = rows
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
    let mut first = 1;
    let mut title = Some(title);
    while first < headings.len() {
        let mut used = widths[0];
        let mut last = first;
        while last < headings.len() && (last == first || used + widths[last] <= width) {
            used += widths[last];
            last += 1;
        }
        let columns: Vec<usize> = std::iter::once(0).chain(first..last).collect();
        let part_headings: Vec<&str> = columns.iter().map(|&column| headings[column]).collect();
        let part_rows = rows
            .iter()
            .map(|row| columns.iter().map(|&column| row[column].clone()).collect())
            .collect();
        if let Some(title) = title.take() {
            anstream::println!("\n{title}");
        }
        anstream::println!("{}", table(&part_headings, part_rows).trim_fmt());
        if overflow == Overflow::Drop {
            return;
        }
        first = last;
    }
}
