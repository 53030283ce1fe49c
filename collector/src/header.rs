//! The process's header: who it is, what it runs on, what could not be recorded.

use std::io;
use std::path::Path;

use gputrace_trace::clock_reading::boot_id;
use gputrace_trace::json_file::json_text;
use gputrace_trace::manifest::{PROCESS_FILE, ProcessHeader};
use gputrace_trace::options::RECORDING_VARIABLE;
use gputrace_trace::recording::host_in_names;
use gputrace_trace::writer::Files;
use gputrace_trace::{TimeNs, now};

use crate::config;
use crate::rank::RankInfo;

/// The header as it is known at injection.
pub(crate) fn new(started: TimeNs) -> ProcessHeader {
    let rank = RankInfo::from_environment(&|name| std::env::var(name).ok());
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let command = command.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    let environment = std::env::vars_os()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .filter(|(name, _)| {
            ["NCCL_", "CUDA_", "SIMGPU_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        });
    let mut header = ProcessHeader {
        recording: std::env::var(RECORDING_VARIABLE).unwrap_or_default(),
        host: gethostname::gethostname().to_string_lossy().into_owned(),
        boot_id: boot_id(),
        pid: std::process::id(),
        parent_pid: std::os::unix::process::parent_id(),
        command: command
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
        started_ns: started.0,
        rank: rank.rank,
        world_size: rank.world_size,
        local_rank: rank.local_rank,
        rank_source: rank.source.map(str::to_owned),
        environment: environment.collect(),
        ..ProcessHeader::new()
    };
    if !config::options().keep_arguments {
        header.redact();
    }
    header
}

/// The name of the process's folder.
pub(crate) fn folder_name(header: &ProcessHeader) -> String {
    let host = host_in_names(&header.host);
    format!("{host}-{}-{}", header.pid, header.started_ns)
}

/// Writes the header into the process's folder, with what recording has cost so far.
pub(crate) fn write(files: &dyn Files, folder: &Path, header: &mut ProcessHeader) -> io::Result<()> {
    header.collector = Some(crate::cost::so_far());
    files.replace(&folder.join(PROCESS_FILE), &json_text(PROCESS_FILE, header)?)
}

/// What NCCL tells of the rank, where the launcher told nothing: the rank in the largest communicator.
pub(crate) fn learn_rank(header: &mut ProcessHeader, rank: u32, ranks: u32) {
    let from_nccl = header.rank_source.as_deref() == Some("NCCL communicator");
    if header.rank.is_none() || from_nccl && header.world_size.is_none_or(|size| size < ranks) {
        header.rank = Some(rank);
        header.world_size = Some(ranks);
        header.rank_source = Some("NCCL communicator".to_owned());
    }
}

/// Marks the end.
pub(crate) fn close(header: &mut ProcessHeader) {
    header.ended_ns = Some(now().0);
}
