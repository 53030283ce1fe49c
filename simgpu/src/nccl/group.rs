//! Communicators and groups: what is enqueued, and how a group becomes kernels.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::cupti::sys::CUpti_driver_api_trace_cbid_enum as Callback;

use super::bootstrap::{self, Meeting};
use super::collective::{Mesh, Operation};
use super::model::{self, Choice, Function};
use super::profiler::{CollectiveInfo, Event, Profiler};
use super::{reduce, result};
use crate::config::config;
use crate::device::{EventRecord, OpKind, Stream, Submission};
use crate::driver::{entry, next_handle, stream_from_handle};

/// One rank's communicator.
pub(super) struct Communicator {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) device: u32,
    mesh: Arc<Mesh>,
    profiler: Option<Profiler>,
    /// What went wrong on the device's side; 0 while all is well.
    pub(super) error: Arc<AtomicI32>,
    /// The end of the last kernel: the next one waits for it, whatever its stream.
    last: Mutex<Option<Arc<EventRecord>>>,
    /// Operations so far, by function.
    sequences: Mutex<BTreeMap<&'static CStr, u64>>,
}

/// A call that waits for its group's end.
struct Call {
    communicator: Arc<Communicator>,
    operation: Operation,
    stream: u64,
    coll_api: Event,
}

/// The thread's open group.
#[derive(Default)]
struct Group {
    depth: i32,
    calls: Vec<Call>,
    /// The group's event with the profiler of the communicator that came first.
    event: Option<(Arc<Communicator>, Event)>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::new(Group::default());
}

static COMMUNICATORS: Mutex<BTreeMap<u64, Arc<Communicator>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The communicator of a handle.
pub(super) fn communicator(handle: u64) -> Result<Arc<Communicator>, i32> {
    lock(&COMMUNICATORS)
        .get(&handle)
        .cloned()
        .ok_or(result::INVALID_ARGUMENT)
}

/// Forgets a communicator. `abort`: breaks its connections, so that nobody waits for it.
pub(super) fn remove(handle: u64, abort: bool) -> Result<(), i32> {
    let communicator = lock(&COMMUNICATORS)
        .remove(&handle)
        .ok_or(result::INVALID_ARGUMENT)?;
    if abort {
        communicator.mesh.shut_down();
    } else if let Some(last) = lock(&communicator.last).take() {
        last.wait();
    }
    Ok(())
}

/// Joins the meeting of a unique id as `rank` of `ranks`, and waits for all of them.
pub(super) fn create(
    id: &[u8; 128],
    rank: u32,
    ranks: u32,
    device: u32,
    name: Option<&CStr>,
) -> Result<u64, i32> {
    if ranks == 0 || rank >= ranks {
        return Err(result::INVALID_ARGUMENT);
    }
    let meeting = Meeting::from_id(id).ok_or(result::INVALID_ARGUMENT)?;
    let peers = if ranks == 1 {
        vec![None]
    } else {
        bootstrap::connect(meeting, rank, ranks).map_err(|error| {
            eprintln!("simgpu: NCCL rank {rank} of {ranks}: cannot reach the others: {error}");
            result::SYSTEM_ERROR
        })?
    };
    // The devices of the ranks are taken to be the ranks' numbers, as on one node with one rank a GPU.
    let slow = |&&(a, b, _): &&(u32, u32, f64)| a < ranks && b < ranks;
    let link_factor = config()
        .slow_links
        .iter()
        .filter(slow)
        .map(|(.., factor)| *factor)
        .fold(1.0, f64::max);
    let profiler = if ranks > 1 {
        Profiler::new(meeting.key, name, ranks, rank)
    } else {
        None
    };
    let communicator = Communicator {
        rank,
        ranks,
        device,
        mesh: Arc::new(Mesh {
            rank,
            ranks,
            peers,
            link_factor,
        }),
        profiler,
        error: Arc::new(AtomicI32::new(result::SUCCESS)),
        last: Mutex::new(None),
        sequences: Mutex::new(BTreeMap::new()),
    };
    let handle = next_handle();
    lock(&COMMUNICATORS).insert(handle, Arc::new(communicator));
    Ok(handle)
}

/// ncclGroupStart.
pub(super) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// ncclGroupEnd: the outermost one launches.
pub(super) fn end() -> Result<(), i32> {
    let finished = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Err(result::INVALID_USAGE);
        }
        group.depth -= 1;
        Ok(if group.depth == 0 {
            Some(std::mem::take(group))
        } else {
            None
        })
    })?;
    finished.map_or(Ok(()), launch_group)
}

/// A call inside or outside a group; outside it is a group of its own.
pub(super) fn enqueue(handle: u64, operation: Operation, stream: u64) -> Result<(), i32> {
    let communicator = communicator(handle)?;
    let explicit = GROUP.with_borrow(|group| group.depth);
    start();
    let queued = queue(communicator, operation, stream, explicit);
    let ended = end();
    queued.and(ended)
}

fn queue(
    communicator: Arc<Communicator>,
    mut operation: Operation,
    stream: u64,
    explicit: i32,
) -> Result<(), i32> {
    if operation.count == 0 {
        return Ok(());
    }
    let (send_bytes, receive_bytes) = operation.buffer_bytes(communicator.ranks);
    let in_memory = |address, bytes| crate::device::memory::device_range(address, bytes).is_ok();
    let receives = operation.function != Function::Reduce || operation.root == communicator.rank;
    let sends = operation.function != Function::Broadcast || operation.root == communicator.rank;
    if operation.root >= communicator.ranks
        || sends && !in_memory(operation.send, send_bytes)
        || receives && !in_memory(operation.receive, receive_bytes)
    {
        return Err(result::INVALID_ARGUMENT);
    }
    operation.sequence = {
        let mut sequences = lock(&communicator.sequences);
        let next = sequences.entry(operation.function.name()).or_default();
        *next += 1;
        *next - 1
    };
    GROUP.with_borrow_mut(|group| {
        let mut coll_api = Event::NONE;
        if let Some(profiler) = &communicator.profiler {
            let group_api = match &group.event {
                Some((_, event)) => *event,
                None => {
                    let event = profiler.group_api(explicit + 1);
                    group.event = Some((Arc::clone(&communicator), event));
                    event
                }
            };
            coll_api = profiler.coll_api(group_api, &user_info(&operation, stream));
        }
        group.calls.push(Call {
            communicator,
            operation,
            stream,
            coll_api,
        });
    });
    Ok(())
}

fn user_info(operation: &Operation, stream: u64) -> CollectiveInfo {
    CollectiveInfo {
        sequence: operation.sequence,
        function: operation.function.name(),
        send: operation.send,
        receive: operation.receive,
        count: operation.count,
        datatype: reduce::datatype(operation.datatype).map_or(c"", |(_, name, _)| name),
        root: operation.root,
        stream,
    }
}

/// As NCCL's task has it: AllGather and Broadcast count bytes.
fn task_info(operation: &Operation, stream: u64) -> CollectiveInfo {
    let info = user_info(operation, stream);
    match operation.function {
        Function::AllGather | Function::Broadcast => CollectiveInfo {
            count: operation.count * operation.element_bytes,
            datatype: c"ncclInt8",
            ..info
        },
        _ => info,
    }
}

fn launch_group(group: Group) -> Result<(), i32> {
    let group_api = group.event.as_ref().map_or(Event::NONE, |(_, event)| *event);
    if let Some((communicator, event)) = &group.event
        && let Some(profiler) = &communicator.profiler
    {
        profiler.group_end(*event);
    }
    // One plan a communicator, in the order of their first calls.
    let mut plans: Vec<(Arc<Communicator>, Vec<Call>)> = Vec::new();
    for call in group.calls {
        match plans
            .iter_mut()
            .find(|(communicator, _)| Arc::ptr_eq(communicator, &call.communicator))
        {
            Some((_, calls)) => calls.push(call),
            None => plans.push((Arc::clone(&call.communicator), vec![call])),
        }
    }
    let mut launched = Ok(());
    for (communicator, calls) in plans {
        let one = if communicator.ranks == 1 {
            copy_for_one_rank(&calls)
        } else {
            launch_plan(&communicator, &calls, group_api)
        };
        launched = launched.and(one);
    }
    if let Some((communicator, event)) = group.event
        && let Some(profiler) = &communicator.profiler
    {
        profiler.stop(event);
    }
    launched
}

/// A communicator of one rank has nobody to talk to: its operations are copies, or nothing in place.
fn copy_for_one_rank(calls: &[Call]) -> Result<(), i32> {
    unsafe extern "C" {
        fn cuMemcpyDtoDAsync_v2(destination: u64, source: u64, bytes: usize, stream: u64) -> u32;
    }
    for Call {
        operation, stream, ..
    } in calls
    {
        if operation.send != operation.receive {
            let bytes = operation.count * operation.element_bytes;
            // SAFETY: our own function; it checks its arguments itself.
            if unsafe { cuMemcpyDtoDAsync_v2(operation.receive, operation.send, bytes, *stream) } != 0 {
                return Err(result::UNHANDLED_CUDA_ERROR);
            }
        }
    }
    Ok(())
}

/// The kernel's name, kept for ever: CUPTI hands the pointer out.
fn kernel_name(operation: &Operation, choice: &Choice) -> &'static CStr {
    static NAMES: Mutex<BTreeMap<String, &'static CStr>> = Mutex::new(BTreeMap::new());
    let function = operation.function.name().to_string_lossy();
    let datatype = reduce::datatype(operation.datatype).map_or("", |(.., name)| name);
    // The name only tells ring from tree; the protocol in it is always LL (NCCL before 2.31).
    let shape = if choice.algorithm == c"TREE" {
        "TREE_LL"
    } else {
        "RING_LL"
    };
    let name = match operation.function {
        Function::AllReduce | Function::ReduceScatter | Function::Reduce => {
            let reduction = reduce::operation_name(operation.reduction).unwrap_or("Sum");
            format!("ncclDevKernel_{function}_{reduction}_{datatype}_{shape}")
        }
        _ => format!("ncclDevKernel_{function}_{shape}"),
    };
    let mut names = lock(&NAMES);
    names
        .entry(name.clone())
        .or_insert_with(|| Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str()))
}

fn launch_plan(communicator: &Arc<Communicator>, calls: &[Call], group_api: Event) -> Result<(), i32> {
    let handle = calls[0].stream;
    let cuda = |_| result::UNHANDLED_CUDA_ERROR;
    let stream = stream_from_handle(handle).map_err(cuda)?;
    let mut others: Vec<Arc<Stream>> = Vec::new();
    for call in &calls[1..] {
        let other = stream_from_handle(call.stream).map_err(cuda)?;
        if other.id != stream.id && others.iter().all(|known| known.id != other.id) {
            others.push(other);
        }
    }
    // The kernel waits for all of the group's streams and for the communicator's last kernel.
    for other in &others {
        stream.wait_for(other.record());
    }
    let mut last = lock(&communicator.last);
    if let Some(record) = last.take() {
        stream.wait_for(record);
    }
    let operations: Vec<Operation> = calls.iter().map(|call| call.operation).collect();
    let choices: Vec<Choice> = operations
        .iter()
        .map(|operation| {
            let bytes = operation.model_bytes(communicator.ranks);
            model::choose(
                operation.function,
                bytes,
                communicator.ranks,
                communicator.mesh.link_factor,
            )
        })
        .collect();
    let launch_event = communicator
        .profiler
        .as_ref()
        .map(|profiler| profiler.kernel_launch(group_api, handle));
    let code = entry::enter(
        Callback::CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx as u32,
        c"cuLaunchKernelEx",
        |call| {
            let kind = OpKind::Kernel {
                name: kernel_name(&operations[0], &choices[0]),
                grid: [
                    choices
                        .iter()
                        .map(|choice| u32::from(choice.channels))
                        .max()
                        .unwrap_or(1),
                    1,
                    1,
                ],
                block: [
                    choices.iter().map(|choice| choice.threads).max().unwrap_or(32),
                    1,
                    1,
                ],
                registers: 96,
                dynamic_shared_bytes: 0,
            };
            let (mesh, error) = (Arc::clone(&communicator.mesh), Arc::clone(&communicator.error));
            let work = Box::new(move |start_ns: i64| {
                let mut at_ns = start_ns;
                for operation in &operations {
                    if error.load(Ordering::Relaxed) != result::SUCCESS {
                        break;
                    }
                    match mesh.run(operation, at_ns) {
                        Ok(end_ns) => at_ns = end_ns,
                        Err(problem) => fail(&mesh, &error, &problem),
                    }
                }
                at_ns
            });
            stream.submit(Submission {
                correlation: call.correlation,
                kind,
                work,
            });
            Ok(())
        },
    );
    let done = stream.record();
    for other in &others {
        other.wait_for(Arc::clone(&done));
    }
    *last = Some(done);
    drop(last);
    if let Some(profiler) = &communicator.profiler {
        profiler.stop(launch_event.unwrap_or(Event::NONE));
        let plan = profiler.group(group_api);
        // All of the plan's collectives begin before the first ends; "ends" means enqueued.
        let begin = |(call, choice): (&Call, &Choice)| {
            profiler.coll(call.coll_api, plan, &task_info(&call.operation, handle), choice)
        };
        let begun: Vec<Event> = calls.iter().zip(&choices).map(begin).collect();
        for event in begun {
            profiler.stop(event);
        }
        profiler.stop(plan);
    }
    if code == 0 {
        Ok(())
    } else {
        Err(result::UNHANDLED_CUDA_ERROR)
    }
}

/// Notes what went wrong and lets the peers know.
fn fail(mesh: &Mesh, error: &AtomicI32, problem: &io::Error) {
    let code = if problem.kind() == io::ErrorKind::InvalidData {
        result::INVALID_USAGE
    } else {
        result::REMOTE_ERROR
    };
    if error.swap(code, Ordering::Relaxed) == result::SUCCESS {
        eprintln!("simgpu: NCCL rank {}: {problem}", mesh.rank);
    }
    mesh.shut_down();
}
