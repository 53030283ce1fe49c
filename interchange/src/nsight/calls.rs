//! What the host did with CUDA: calls, waits, and the profiler's own work.

use gputrace_trace::Table;
use gputrace_trace::tables::{ApiCall, Overhead, Synchronization};

use super::rows::{Import, Wanted, maybe, narrow, thread_of};

/// CUPTI's kinds of calls.
const DRIVER: u8 = 4;
const RUNTIME: u8 = 5;
/// `ENUM_NSYS_EVENT_CLASS`.
const CLASS_RUNTIME: i64 = 0;
const CLASS_DRIVER: i64 = 1;
/// The same calls a second time, each with the stack that it was made from.
const CLASS_BACKTRACE: i64 = 67;
/// CUPTI's "none" of streams and events.
const NONE: i64 = u32::MAX as i64;
/// `CUPTI_ACTIVITY_OBJECT_THREAD`.
const OBJECT_THREAD: u32 = 2;

const NEEDED: &[&str] = &["start", "end", "globalTid", "nameId"];
const OPTIONAL: &[&str] = &["eventClass", "correlationId", "returnValue"];
const CALLS: &str = "calls of the CUDA API, and what caused device work";

const CALL_TABLES: [Wanted; 2] = [
    Wanted {
        table: "CUPTI_ACTIVITY_KIND_RUNTIME",
        needed: NEEDED,
        optional: OPTIONAL,
        affects: CALLS,
    },
    Wanted {
        table: "CUPTI_ACTIVITY_KIND_DRIVER",
        needed: NEEDED,
        optional: OPTIONAL,
        affects: CALLS,
    },
];

const SYNCHRONIZATIONS: Wanted = Wanted {
    table: "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    needed: &["start", "end", "syncType"],
    optional: &["globalPid", "contextId", "streamId", "eventId", "correlationId"],
    affects: "synchronizations: what the host waited for",
};

const OVERHEADS: Wanted = Wanted {
    table: "PROFILER_OVERHEAD",
    needed: &["start", "end", "globalTid"],
    optional: &["nameId"],
    affects: "the profiler's own time",
};

/// Reads all tables of what the host did with CUDA.
pub(super) fn read(import: &mut Import<'_>) {
    let mut backtraces = 0u64;
    for wanted in &CALL_TABLES {
        backtraces += calls(import, wanted);
    }
    if backtraces > 0 {
        import.notes.push(format!(
            "{backtraces} rows of CUDA backtraces repeat calls that are there already: left out"
        ));
    }
    synchronizations(import);
    overheads(import);
}

fn calls(import: &mut Import<'_>, wanted: &Wanted) -> u64 {
    let mut backtraces = 0;
    let of_driver = wanted.table.ends_with("DRIVER");
    import.read(wanted, |import, cells| {
        let [start, end, global, name] = cells.needed()?;
        let [class, correlation, result] = cells.optional()?;
        if class == Some(CLASS_BACKTRACE) {
            backtraces += 1;
            return Ok(());
        }
        let (start_ns, duration_ns) = import.span(start, end)?;
        let name = import.strings.call(name, &mut import.names);
        let text = import.names.get(name);
        let kind = match class {
            Some(CLASS_RUNTIME) => RUNTIME,
            Some(CLASS_DRIVER) => DRIVER,
            _ if text.starts_with("cuda") => RUNTIME,
            _ if of_driver || text.starts_with("cu") => DRIVER,
            _ => RUNTIME,
        };
        let call = ApiCall {
            start_ns,
            duration_ns,
            name,
            kind,
            callback: 0,
            thread: thread_of(global),
            correlation: narrow(correlation.unwrap_or(0))?,
            // An error's number; some versions write it signed.
            result: result.unwrap_or(0) as u32,
        };
        import.tables(Some(global))?.api_calls.push(call);
        Ok(())
    });
    backtraces
}

fn synchronizations(import: &mut Import<'_>) {
    import.read(&SYNCHRONIZATIONS, |import, cells| {
        let [start, end, kind] = cells.needed()?;
        let [pid, context, stream, event, correlation] = cells.optional()?;
        let (start_ns, duration_ns) = import.span(start, end)?;
        let some = |id: Option<i64>| maybe(id.filter(|id| *id != NONE && *id != -1));
        let synchronization = Synchronization {
            start_ns,
            duration_ns,
            kind: narrow(kind)?,
            context: some(context)?,
            stream: some(stream)?,
            event: some(event)?,
            correlation: narrow(correlation.unwrap_or(0))?,
            ..Synchronization::default()
        };
        import.tables(pid)?.synchronizations.push(synchronization);
        Ok(())
    });
}

fn overheads(import: &mut Import<'_>) {
    import.read(&OVERHEADS, |import, cells| {
        let [start, end, global] = cells.needed()?;
        let [name] = cells.optional()?;
        let (start_ns, duration_ns) = import.span(start, end)?;
        let name = name.and_then(|id| import.strings.text(id, &mut import.names));
        let overhead = Overhead {
            start_ns,
            duration_ns,
            kind: overhead_kind(name.map_or("", |name| import.names.get(name))),
            object_kind: OBJECT_THREAD,
            thread: Some(thread_of(global)),
            ..Overhead::default()
        };
        // The profiler also works in processes that never use CUDA; those are no part of the recording.
        if let Some(place) = import.processes.known(global) {
            import.processes.list_mut()[place].tables.overheads.push(overhead);
        }
        Ok(())
    });
}

/// `CUpti_ActivityOverheadKind` of what Nsight Systems names; 0 is "unknown", its own work.
fn overhead_kind(name: &str) -> u32 {
    match name.strip_prefix("CUPTI: ").unwrap_or_default() {
        "Driver compiler" | "Driver Compiler" => 1,
        "Buffer flush" | "Buffer Flush" => 1 << 16,
        "Instrumentation" => 2 << 16,
        "Resource Management" | "Resource management" | "Resource" => 3 << 16,
        _ => 0,
    }
}
