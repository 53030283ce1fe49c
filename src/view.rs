//! `gputrace view`: recordings in the browser.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cli::ViewArgs;
use crate::failure::Failure;
use crate::serve;

/// What is no recording shows at once: so long is waited for that before anything is served.
const FIRST_LOOK: Duration = Duration::from_millis(150);

/// Serves recordings until it is told to end.
pub fn run(args: &ViewArgs) -> Result<i32, Failure> {
    args.import.apply();
    for path in &args.paths {
        if path != Path::new("-") && !path.exists() {
            return Err(Failure::new(format!(
                "{}: no such file or folder",
                path.display()
            )));
        }
    }
    let server = serve::bind(&args.server, runs(args), None, None)?;
    server.wait_for_recordings(FIRST_LOOK).map_err(Failure::new)?;
    serve::announce(&server, &args.server);
    if !args.no_open && has_display() {
        let url = server
            .url_for_one_browser(&serve::host(&args.server))
            .map_err(Failure::new)?;
        open_browser(&url);
    }
    serve::answer(server)
}

/// Which paths make one run: a folder is one, and all files together are one, unless it is said otherwise.
fn runs(args: &ViewArgs) -> Vec<Vec<PathBuf>> {
    if args.together {
        return vec![args.paths.clone()];
    }
    let (folders, files): (Vec<&PathBuf>, Vec<&PathBuf>) =
        args.paths.iter().partition(|path| args.apart || path.is_dir());
    let mut runs: Vec<Vec<PathBuf>> = folders.into_iter().map(|path| vec![path.clone()]).collect();
    if !files.is_empty() {
        runs.push(files.into_iter().cloned().collect());
    }
    runs
}

/// Whether a browser that we start would be seen by whoever started us.
fn has_display() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("SSH_CONNECTION") && (cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY"))
}

fn open_browser(url: &str) {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let started = Command::new(opener)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(mut child) => {
            // It ends when the browser has the address, or when the browser does.
            drop(std::thread::spawn(move || child.wait()));
        }
        Err(error) => anstream::eprintln!("  the browser was not opened: {opener}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command as Chosen};
    use clap::Parser;

    fn runs_of(arguments: &[&str]) -> Vec<usize> {
        let all = ["gputrace", "view"].iter().chain(arguments);
        let Some(Chosen::View(args)) = Cli::parse_from(all).command else {
            panic!("it is view");
        };
        runs(&args).iter().map(Vec::len).collect()
    }

    #[test]
    fn folders_are_runs_and_files_are_one() {
        assert_eq!(runs_of(&["/", "/tmp"]), [1, 1]);
        assert_eq!(runs_of(&["a.json", "/tmp", "b.json"]), [1, 2]);
        assert_eq!(runs_of(&["--apart", "a.json", "b.json"]), [1, 1]);
        assert_eq!(runs_of(&["--together", "/", "/tmp", "a.json"]), [3]);
    }
}
