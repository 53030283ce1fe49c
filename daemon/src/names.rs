//! Names that come from others, before they become names of files.

use gputrace_trace::recording::segment_of;

/// The longest name that is taken.
const MOST_BYTES: usize = 128;
/// The longest part of a job's name that comes from its program.
const MOST_PROGRAM_BYTES: usize = 40;

/// Whether a process's folder may be called so: letters, digits, `-` and `_`, as collectors name theirs.
#[must_use]
pub fn is_folder_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    !name.is_empty() && name.len() <= MOST_BYTES && name.bytes().all(plain) && segment_of(name).1 == 0
}

/// Whether a recording or a job may be called so: as we name them.
#[must_use]
pub fn is_recording_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= MOST_BYTES && name.bytes().all(plain) && !name.starts_with('.')
}

/// A short name for a job, of what a scheduler calls it or of its program and its lowest process.
#[must_use]
pub fn job_name(scheduler: Option<&str>, program: &str, pid: u32) -> String {
    let clean = |text: &str| -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let text = text.strip_suffix(".py").unwrap_or(text);
        let text: String = text
            .chars()
            .map(|c| if plain(c) { c } else { '_' })
            .take(MOST_PROGRAM_BYTES)
            .collect();
        text.trim_matches(['-', '_']).to_owned()
    };
    if let Some(name) = scheduler.map(clean).filter(|name| !name.is_empty()) {
        return name;
    }
    let program = clean(program);
    match program.is_empty() {
        true => format!("job-{pid}"),
        false => format!("{program}-{pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere() {
        assert!(is_folder_name("node7-4711-1732400000"));
        for wrong in [
            "",
            ".",
            "..",
            "a/b",
            "a.1",
            ".a",
            "a\0b",
            "ä",
            "a b",
            &"x".repeat(200),
        ] {
            assert!(!is_folder_name(wrong), "{wrong}");
        }
        assert!(is_recording_name("ddp-4711-20261123-213000-hang"));
        for wrong in ["", ".", "..", "a/..", "../a", ".part", "a\nb"] {
            assert!(!is_recording_name(wrong), "{wrong}");
        }
    }

    #[test]
    fn jobs_are_called_what_people_call_them() {
        assert_eq!(job_name(Some("slurm-1234"), "python3", 7), "slurm-1234");
        assert_eq!(job_name(None, "train.py", 4711), "train-4711");
        assert_eq!(job_name(None, "../../etc/passwd", 1), "etc_passwd-1");
        assert_eq!(job_name(Some("///"), "", 1), "job-1");
    }
}
