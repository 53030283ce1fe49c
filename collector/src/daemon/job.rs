//! What a process's job is known by.

use std::path::Path;

use gputrace_trace::daemon::JobKey;
use gputrace_trace::manifest::ProcessHeader;

/// Launchers' names of a run: the variables that together name it. The first whose first variable is set counts.
const RUNS: [&[&str]; 5] = [
    &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    &["PMIX_NAMESPACE"],
    &["OMPI_MCA_ess_base_jobid"],
    &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"],
    &["MASTER_ADDR", "MASTER_PORT"],
];

/// The key of this process's job. Processes without a launcher's variables are of one job when they are ranks of one parent; one
/// without a rank is a job of its own.
pub(super) fn key(header: &ProcessHeader, variable: &dyn Fn(&str) -> Option<String>) -> JobKey {
    let run = RUNS.iter().find_map(|names| {
        variable(names[0])?;
        let values: Vec<String> = names
            .iter()
            .filter_map(|name| Some(format!("{name}={}", variable(name)?)))
            .collect();
        Some(values.join(" "))
    });
    let group = match (run, header.rank) {
        // Runs on one machine that follow each other have the same port: their launchers differ.
        (Some(run), _) if run.starts_with("MASTER") => format!("{run} parent={}", header.parent_pid),
        (Some(run), _) => run,
        (None, Some(_)) => format!("parent={}", header.parent_pid),
        (None, None) => format!("pid={}", header.pid),
    };
    JobKey {
        group,
        scheduler: variable("SLURM_JOB_ID").map(|id| format!("slurm-{id}")),
        program: program(&header.command),
    }
}

/// The program's name: of an interpreter's script or module, that.
fn program(command: &[String]) -> String {
    let name = |word: &str| {
        let name = Path::new(word).file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let Some(first) = command.first().map(|word| name(word)) else {
        return String::new();
    };
    if !first.starts_with("python") {
        return match command.get(1) {
            // The bundled programs.
            Some(word) if first == "gputrace" && word == "workload" => {
                command.get(2).cloned().unwrap_or(first)
            }
            _ => first,
        };
    }
    let mut words = command.iter().skip(1);
    while let Some(word) = words.next() {
        if word == "-m" {
            return words.next().cloned().unwrap_or(first);
        }
        if word == "-X" || word == "-W" {
            words.next();
        } else if !word.starts_with('-') {
            let script = name(word);
            return script.strip_suffix(".py").unwrap_or(&script).to_owned();
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn programs_are_called_as_their_users_call_them() {
        let named = |text| program(&words(text));
        assert_eq!(named("/usr/bin/python3 -u -X dev train/run.py --lr 1"), "run");
        assert_eq!(
            named("python -m torch.distributed.run x.py"),
            "torch.distributed.run"
        );
        assert_eq!(named("./a.out 1 2"), "a.out");
        assert_eq!(named("/x/gputrace workload ddp --ranks 4"), "ddp");
        assert_eq!(named("python"), "python");
        assert_eq!(program(&[]), "");
    }

    #[test]
    fn ranks_of_one_run_have_one_key() {
        let header = |pid, rank| ProcessHeader {
            pid,
            parent_pid: 7,
            rank,
            ..ProcessHeader::new()
        };
        let group = |header: &ProcessHeader, set: &'static [(&'static str, &'static str)]| {
            let variable = move |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name)?;
                Some(found.1.to_owned())
            };
            key(header, &variable).group
        };
        let slurm: &[_] = &[
            ("SLURM_JOB_ID", "12"),
            ("SLURM_STEP_ID", "0"),
            ("MASTER_ADDR", "a"),
        ];
        assert_eq!(group(&header(1, None), slurm), "SLURM_JOB_ID=12 SLURM_STEP_ID=0");
        let torchrun: &[_] = &[("MASTER_ADDR", "a"), ("MASTER_PORT", "29500")];
        assert_eq!(
            group(&header(1, Some(0)), torchrun),
            "MASTER_ADDR=a MASTER_PORT=29500 parent=7"
        );
        assert_eq!(group(&header(1, Some(0)), &[]), group(&header(2, Some(1)), &[]));
        assert_ne!(group(&header(1, None), &[]), group(&header(2, None), &[]));
    }
}
