//! The recorder's live line and the command's output on one terminal: neither lands in the other.

use crate::common;

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

use common::{fresh_folder, gputrace};

/// A terminal of 120 columns: its own end, and the command's.
fn terminal() -> (File, OwnedFd) {
    let size = libc::winsize {
        ws_row: 40,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: two places for file descriptors and a size that openpty only reads; no name and no settings.
    let opened = unsafe {
        libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        )
    };
    assert_eq!(opened, 0, "a pseudo-terminal");
    // SAFETY: openpty just gave both to us.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// All that a command writes to its terminal.
fn on_terminal(command: &mut Command) -> String {
    let (mut ours, theirs) = terminal();
    let again = theirs.try_clone().expect("a second descriptor");
    let mut child = command
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(theirs)
        .stderr(again)
        .spawn()
        .expect("the program starts");
    // The command keeps its ends of the terminal open: reading must not wait for them.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut bytes = Vec::new();
    let mut block = [0; 4096];
    // A terminal whose last writer is gone gives an error, which is its end.
    while let Ok(read @ 1..) = ours.read(&mut block) {
        bytes.extend_from_slice(&block[..read]);
    }
    assert!(child.wait().expect("it ends").success());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The lines as a terminal shows them: only what is used here of its language.
fn shown(text: &str) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column, mut kept) = (0, 0, (0, 0));
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                if lines.len() <= row {
                    lines.push(Vec::new());
                }
            }
            '\x1b' => match letters.next() {
                Some('7') => kept = (row, column),
                Some('8') => (row, column) = kept,
                Some('[') => {
                    let mut number = String::new();
                    let end = loop {
                        match letters.next() {
                            Some(digit) if digit.is_ascii_digit() || "?;".contains(digit) => {
                                number.push(digit);
                            }
                            other => break other,
                        }
                    };
                    let count = number.parse::<usize>().unwrap_or(0);
                    match end {
                        Some('K') if count == 2 => lines[row].clear(),
                        Some('K') => lines[row].truncate(column),
                        Some('A') => row = row.saturating_sub(count.max(1)),
                        Some('G') => column = count.max(1) - 1,
                        Some('m' | 'h' | 'l') => {}
                        other => panic!("ESC [ {number} {other:?} is not known here"),
                    }
                }
                other => panic!("ESC {other:?} is not known here"),
            },
            letter => {
                if lines[row].len() <= column {
                    lines[row].resize(column + 1, ' ');
                }
                lines[row][column] = letter;
                column += 1;
            }
        }
    }
    lines
        .into_iter()
        .map(|line| line.into_iter().collect::<String>().trim_end().to_owned())
        .collect()
}

#[test]
fn a_bundled_workload_has_its_lines_for_itself() {
    let (_keep, folder) = fresh_folder("recording");
    let text = on_terminal(
        gputrace()
            .args(["record", "--device", "sim", "-o"])
            .arg(&folder)
            .args(["--", "workload", "ddp", "--ranks", "2", "--steps", "60"]),
    );
    assert!(text.contains("events · "), "a live line was drawn: {text:?}");
    let lines = shown(&text);
    let live = |line: &&String| line.contains(" events · ") && !line.starts_with("recorded: ");
    assert_eq!(
        lines.iter().find(live),
        None,
        "nothing of it is left:\n{}",
        lines.join("\n")
    );
    let first = lines.iter().position(|line| line.starts_with("Simulated H200"));
    assert!(
        first.is_some(),
        "the workload's first line:\n{}",
        lines.join("\n")
    );
}

#[test]
fn a_command_of_the_users_has_the_left_of_the_terminal() {
    let (_keep, folder) = fresh_folder("recording");
    // A part of a line, a pause in which the live line is drawn, and the rest.
    let script = "test -t 1 && for i in 1 2 3; do printf 'epoch %s ' $i; sleep 0.6; echo done; done";
    let text = on_terminal(
        gputrace()
            .args(["record", "--device", "sim", "-o"])
            .arg(&folder)
            .args(["--", "sh", "-c", script]),
    );
    assert!(text.contains("0 ranks · "), "a live line was drawn: {text:?}");
    let lines = shown(&text);
    for epoch in 1..=3 {
        let whole = format!("epoch {epoch} done");
        let found = lines.iter().find(|line| line.starts_with(&whole));
        let rest = found.map(|line| line[whole.len()..].trim_start());
        assert!(
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("0 ranks · ")),
            "{whole}:\n{}",
            lines.join("\n")
        );
    }
}
