//! What CUPTI calls us back for: rare calls of the driver, graphs that are made, and CUPTI's own end; and calls that put work on a
//! device, where their stacks are wanted.
//!
//! Called on the program's threads, inside the driver: nothing here blocks, and unless stacks are wanted only calls of which a
//! program makes a handful are asked for, so that its launches pay nothing.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use gputrace_trace::now;

use crate::cupti::lost;
use crate::graphs::{self, GraphData};
use crate::host_events::{Lost, with_thread};
use crate::windows::Event;
use crate::windows::watch;
use crate::{cost, forked, power, sink, stacks};

/// CUpti_CallbackDomain.
pub(crate) const DRIVER_API: u32 = 1;
pub(crate) const RUNTIME_API: u32 = 2;
const RESOURCE: u32 = 3;
const STATE: u32 = 6;
/// CUpti_driver_api_trace_cbid.
const PROFILER_START: u32 = 308;
const PROFILER_STOP: u32 = 309;
const CONTEXT_DESTROY: u32 = 11;
const CONTEXT_DESTROY_V2: u32 = 322;
const PRIMARY_CONTEXT_RELEASE: u32 = 387;
const PRIMARY_CONTEXT_RESET: u32 = 389;
const PRIMARY_CONTEXT_RELEASE_V2: u32 = 544;
const PRIMARY_CONTEXT_RESET_V2: u32 = 545;
/// What ends a context.
const CONTEXT_ENDS: [u32; 6] = [
    CONTEXT_DESTROY,
    CONTEXT_DESTROY_V2,
    PRIMARY_CONTEXT_RELEASE,
    PRIMARY_CONTEXT_RELEASE_V2,
    PRIMARY_CONTEXT_RESET,
    PRIMARY_CONTEXT_RESET_V2,
];
/// CUpti_CallbackIdResource.
const GRAPH_CREATED: u32 = 9;
const GRAPH_NODE_CREATED: u32 = 13;
const GRAPH_EXEC_CREATE_STARTING: u32 = 17;
const GRAPH_NODE_CLONED: u32 = 20;
/// CUpti_CallbackIdState.
const FATAL_ERROR: u32 = 1;
/// CUPTI_API_ENTER.
const ENTER: u32 = 0;

/// How long the end of a context may be held up.
const PATIENCE: Duration = Duration::from_millis(500);

/// The callbacks that are asked for: domain and id. `profiler_calls`: whether these decide what is recorded.
pub(crate) fn wanted(profiler_calls: bool) -> impl Iterator<Item = (u32, u32)> {
    let profiler = [PROFILER_START, PROFILER_STOP].map(|id| (DRIVER_API, id));
    let ends = CONTEXT_ENDS.map(|id| (DRIVER_API, id));
    let others = [
        (RESOURCE, GRAPH_CREATED),
        (RESOURCE, GRAPH_NODE_CREATED),
        (RESOURCE, GRAPH_EXEC_CREATE_STARTING),
        (RESOURCE, GRAPH_NODE_CLONED),
        (STATE, FATAL_ERROR),
    ];
    profiler
        .into_iter()
        .filter(move |_| profiler_calls)
        .chain(ends)
        .chain(others)
}

/// CUpti_CallbackData.
#[repr(C)]
struct CallData {
    site: u32,
    function_name: usize,
    parameters: usize,
    result: usize,
    symbol_name: usize,
    context: usize,
    context_id: u32,
    correlation_data: usize,
    correlation: u32,
}

/// CUpti_ResourceData.
#[repr(C)]
struct ResourceData {
    context: usize,
    handle: usize,
    descriptor: *const c_void,
}

/// The subscriber's callback (`CUpti_CallbackFunc`).
pub(crate) unsafe extern "C" fn called(_: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    if forked::is_child() {
        return;
    }
    let is_rare =
        domain == DRIVER_API && (CONTEXT_ENDS.contains(&id) || matches!(id, PROFILER_START | PROFILER_STOP));
    let _measured = cost::enter(match domain {
        DRIVER_API if is_rare => cost::Callback::Call,
        DRIVER_API | RUNTIME_API => cost::Callback::Stack,
        _ => cost::Callback::Other,
    });
    // A panic must not reach CUPTI.
    drop(catch_unwind(AssertUnwindSafe(|| match domain {
        DRIVER_API | RUNTIME_API => {
            // SAFETY: CUPTI passes a CUpti_CallbackData for these domains, valid for the call.
            if let Some(data) = unsafe { data.cast::<CallData>().as_ref() } {
                let is_runtime = domain == RUNTIME_API;
                match data.site == ENTER {
                    true if is_rare => driver_call(id),
                    true if !power::is_off() => stacks::begins(is_runtime, data.correlation),
                    false if !is_rare => stacks::ends(is_runtime, data.correlation),
                    _ => {}
                }
            }
        }
        RESOURCE => {
            power::graph_seen();
            // SAFETY: CUPTI passes a CUpti_ResourceData for this domain, valid for the call.
            if let Some(data) = unsafe { data.cast::<ResourceData>().as_ref() } {
                about_graph(id, data);
            }
        }
        STATE if id == FATAL_ERROR => lost::lose(),
        _ => {}
    })));
}

fn about_graph(id: u32, data: &ResourceData) {
    if !matches!(id, GRAPH_NODE_CREATED | GRAPH_NODE_CLONED) {
        return;
    }
    // SAFETY: for these CUPTI passes a CUpti_GraphData, valid for the call.
    let Some(graph) = (unsafe { data.descriptor.cast::<GraphData>().as_ref() }) else {
        return;
    };
    if id == GRAPH_NODE_CREATED {
        graphs::node_created(graph);
    } else {
        graphs::node_cloned(graph);
    }
}

fn driver_call(id: u32) {
    match id {
        PROFILER_START => {
            power::on_without_waiting();
            note(Event::Profiler(true));
        }
        PROFILER_STOP => note(Event::Profiler(false)),
        // The context's records must be asked for before it is gone.
        _ => sink::flush_before_end(PATIENCE),
    }
}

/// Notes an event for the writer, with the thread's state in use: a signal handler that comes meanwhile and pushes a range, say,
/// is turned away, where it would otherwise wait for itself.
fn note(event: Event) {
    with_thread(Lost::Ranges, |_| watch::note(now(), event));
}
