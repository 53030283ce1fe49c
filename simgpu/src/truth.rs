//! The truth log: every operation with the times that it really had on the modelled device.
//!
//! `SIMGPU_TRUTH/rank{r}.jsonl`, one line an operation, written by a thread of its own at most 50 ms later; and at the
//! end `rank{r}.summary.json`: how many operations there were, how many of them were stretched because the CPU could not
//! keep up (their lines say so), how many were computed late without that, and by how much the latest.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::clock::delivered_ns;
use crate::config::config;
use crate::device::{CompletedOp, OpKind};

static OPERATIONS: AtomicU64 = AtomicU64::new(0);
static STRETCHED: AtomicU64 = AtomicU64::new(0);
static LATE: AtomicU64 = AtomicU64::new(0);
static MOST_LAG_NS: AtomicI64 = AtomicI64::new(0);

struct Log {
    file: File,
    text: Vec<u8>,
}

fn log() -> Option<MutexGuard<'static, Log>> {
    static LOG: OnceLock<Option<Mutex<Log>>> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let path = config()
            .truth
            .as_ref()?
            .join(format!("rank{}.jsonl", config().rank));
        match OpenOptions::new().create(true).append(true).open(&path) {
            Ok(file) => {
                std::thread::Builder::new()
                    .name("simgpu-truth".to_owned())
                    .spawn(|| {
                        loop {
                            std::thread::sleep(Duration::from_millis(50));
                            flush();
                        }
                    })
                    .ok()?;
                Some(Mutex::new(Log {
                    file,
                    text: Vec::new(),
                }))
            }
            Err(error) => {
                eprintln!("simgpu: SIMGPU_TRUTH: {}: {error}", path.display());
                None
            }
        }
    });
    log.as_ref()
        .map(|log| log.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Counts an operation whose arithmetic was done so long after its modelled end.
pub(crate) fn count_late(lag_ns: i64) {
    LATE.fetch_add(1, Ordering::Relaxed);
    MOST_LAG_NS.fetch_max(lag_ns, Ordering::Relaxed);
}

/// Notes a finished operation.
pub(crate) fn record(op: &CompletedOp) {
    OPERATIONS.fetch_add(1, Ordering::Relaxed);
    STRETCHED.fetch_add(u64::from(op.stretched), Ordering::Relaxed);
    let Some(mut log) = log() else { return };
    let (kind, name) = match &op.kind {
        OpKind::Kernel { name, .. } => ("kernel", name.to_string_lossy().into_owned()),
        OpKind::Copy { copy_kind, .. } => ("memcpy", format!("copy kind {copy_kind}")),
        OpKind::Memset { .. } => ("memset", "memset".to_owned()),
    };
    let mut line = serde_json::json!({
        "kind": kind, "name": name, "device": op.device, "stream": op.stream, "correlation": op.correlation,
        "start_ns": op.start_ns, "end_ns": op.end_ns,
    });
    if let Some(graph) = &op.graph {
        line["graph"] = graph.run.graph.into();
        line["graph_node"] = graph.node.into();
    }
    if op.stretched {
        line["stretched"] = true.into();
    }
    if config().skew.is_some() || config().clock_step.is_some() {
        line["delivered_start_ns"] = delivered_ns(op.start_ns).into();
        line["delivered_end_ns"] = delivered_ns(op.end_ns).into();
    }
    log.text.extend_from_slice(line.to_string().as_bytes());
    log.text.push(b'\n');
}

/// Writes what was noted until now.
pub(crate) fn flush() {
    let Some(mut log) = log() else { return };
    let text = std::mem::take(&mut log.text);
    if let Err(error) = log.file.write_all(&text) {
        eprintln!("simgpu: SIMGPU_TRUTH: {error}");
    }
}

/// At the end of the process: the last lines and the summary.
pub(crate) fn close() {
    flush();
    if let Some(folder) = &config().truth {
        let summary = serde_json::json!({
            "operations": OPERATIONS.load(Ordering::Relaxed), "stretched": STRETCHED.load(Ordering::Relaxed),
            "late": LATE.load(Ordering::Relaxed), "most_lag_ns": MOST_LAG_NS.load(Ordering::Relaxed),
        });
        let path = folder.join(format!("rank{}.summary.json", config().rank));
        if let Err(error) = std::fs::write(&path, format!("{summary}\n")) {
            eprintln!("simgpu: SIMGPU_TRUTH: {}: {error}", path.display());
        }
    }
}
