//! Every command that the help, the README and the documents show is one that can be typed.

use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use super::{Cli, Command};

/// The commands of `gputrace` in a text: its lines that begin with one, a launcher or variables before it, whatever else
/// stands behind it left out.
fn commands(text: &str) -> Vec<Vec<String>> {
    let parts: Vec<&str> = text.split("\\\n").map(str::trim).collect();
    let text = parts.join(" ");
    let lines = text.lines().map(|line| line.trim().trim_start_matches("$ "));
    lines.filter_map(words).collect()
}

/// The words of a line from `gputrace` on, if it is a command: up to a comment, which stands two blanks away, or to what the
/// shell would do next.
fn words(line: &str) -> Option<Vec<String>> {
    const LAUNCHERS: [&str; 3] = ["srun ", "GPUTRACE_TOKEN=$(cat token) ", "cargo run --release -- "];
    let mut line = line.to_owned();
    for launcher in LAUNCHERS {
        if let Some(rest) = line.strip_prefix(launcher) {
            line = rest.trim_start_matches("gputrace ").to_owned();
            line.insert_str(0, "gputrace ");
        }
    }
    let line = line.strip_prefix("gputrace ")?;
    let ends = ["   ", "  ", " | ", " > ", " &", " # "];
    let end = ends.iter().filter_map(|end| line.find(end)).min();
    let words = line[..end.unwrap_or(line.len())].split_whitespace();
    // A sentence that begins with the program's name.
    let is_command = Cli::command().find_subcommand(line.split(' ').next()?).is_some();
    let mut words: Vec<String> = words
        .map(|word| word.trim_matches(['\'', '"']).to_owned())
        .collect();
    // What else there is to say, but for a whole command.
    if words.ends_with(&["...".to_owned()]) && !words.ends_with(&["--".to_owned(), "...".to_owned()]) {
        words.pop();
    }
    is_command.then_some(words)
}

/// What is wrong with a command.
fn wrong(words: &[String]) -> Option<String> {
    // A synopsis.
    if words.iter().any(|word| word.starts_with('[') || word == "WAY") {
        return None;
    }
    let all = std::iter::once("gputrace").chain(words.iter().map(String::as_str));
    let parsed = match Cli::try_parse_from(all) {
        Ok(parsed) => parsed,
        Err(error) if !error.use_stderr() => return None,
        Err(error) => return Some(error.to_string()),
    };
    let workload = match &parsed.command {
        Some(Command::Workload(args)) => args.arguments.as_slice(),
        Some(Command::Record(args)) => match args.command.split_first() {
            Some((first, rest)) if first == "workload" => rest,
            _ => &[],
        },
        _ => &[],
    };
    if workload.is_empty() || workload[0] == "--list" {
        return None;
    }
    if workload.iter().any(|word| word == "--trace-only") {
        let error = crate::synthetic::parse(workload).err()?;
        return error.use_stderr().then(|| error.to_string());
    }
    let whole = std::iter::once("workload".into()).chain(workload.iter().cloned());
    let error = workloads::command().try_get_matches_from(whole).err()?;
    error.use_stderr().then(|| error.to_string())
}

fn check(place: &str, text: &str, least: usize) {
    let found = commands(text);
    assert!(found.len() >= least, "{place}: {} commands found", found.len());
    for command in found {
        if let Some(wrong) = wrong(&command) {
            panic!("{place}: gputrace {}: {wrong}", command.join(" "));
        }
    }
}

/// The pages of a folder, in order.
fn pages(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    files.sort();
    files
}

/// What `docs/site/build` records is what the page of that name shows, and every page of the tutorial has a recording.
#[test]
fn the_tutorial_shows_the_recordings_that_it_has() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cases = std::fs::read_to_string(root.join("docs/site/cases.json")).expect("the cases");
    let cases: Vec<serde_json::Value> = serde_json::from_str(&cases).expect("JSON");
    let mut told = 0;
    for page in pages("docs/tutorial") {
        let name = page.file_stem().expect("a name").to_string_lossy();
        let Some(case) = cases.iter().find(|case| case["name"] == *name) else {
            assert_eq!(name, "index", "docs/site/cases.json lacks {name}");
            continue;
        };
        let command = case["command"].as_str().expect("a command");
        let command = command.replacen("record ", "record -o run ", 1);
        let text = std::fs::read_to_string(&page).expect("the page");
        let shown = commands(&text)
            .into_iter()
            .map(|words| format!("gputrace {}", words.join(" ")));
        assert!(
            shown.into_iter().any(|shown| shown == command),
            "{name} does not show: {command}"
        );
        for mark in ["<!-- findings -->", "<!-- picture -->", "<!-- download -->"] {
            assert!(text.contains(mark), "{name} lacks {mark}");
        }
        told += 1;
    }
    assert_eq!(told, cases.len(), "a case of docs/site/cases.json has no page");
}

#[test]
fn what_documents_show_can_be_typed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> = [pages("docs"), pages("docs/tutorial")].concat();
    let mut all = String::new();
    for name in ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"] {
        files.push(root.join(name));
    }
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a document");
        check(&file.display().to_string(), &text, 0);
        all += &text;
        all.push('\n');
    }
    check("all documents", &all, 80);
}

#[test]
fn what_the_help_shows_can_be_typed() {
    fn look(command: &clap::Command, found: &mut String) {
        for help in [command.get_after_help(), command.get_after_long_help()] {
            let help = help.map(ToString::to_string).unwrap_or_default();
            *found += &help;
            found.push('\n');
        }
        for sub in command.get_subcommands() {
            look(sub, found);
        }
    }
    let mut found = String::new();
    look(&crate::manual::command(), &mut found);
    check("--help", &found, 60);
}

#[test]
fn commands_are_found_in_what_is_written() {
    let text = "Text.\n\n    gputrace analyze run1 --json | jq .x\n    gputrace view run1      in a browser\n\
                gputrace starts a process.\n    srun gputrace record -o run1 -- ./train\n\
                gputrace record -o a -- \\\n   torchrun x.py\n";
    let found: Vec<String> = commands(text).iter().map(|words| words.join(" ")).collect();
    assert_eq!(
        found,
        [
            "analyze run1 --json",
            "view run1",
            "record -o run1 -- ./train",
            "record -o a -- torchrun x.py"
        ]
    );
    assert!(wrong(&["analyze".to_owned(), "--jsn".to_owned()]).is_some());
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert!(wrong(&words("record -- workload ddp --rank 3")).is_some());
    assert!(wrong(&words("record -- workload ddp --ranks 3")).is_none());
}
