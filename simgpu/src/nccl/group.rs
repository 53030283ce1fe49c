//! Groups: what is called between ncclGroupStart and ncclGroupEnd, launched together at the end.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::communicator::{self, Communicator, Creation};
use super::errors::{Failure, Outcome};
use super::model::Function;
use super::operation::{Operation, Transfer};
use super::plan;
use super::profiler::Event;
use crate::device::memory::device_range;
use crate::driver::graph::capture;
use crate::driver::stream_from_handle;

/// What a call asks for.
pub(super) enum Work {
    Collective(Operation),
    Transfer(Transfer),
}

/// A call that waits for its group's end.
pub(super) struct Call {
    pub(super) communicator: Arc<Communicator>,
    pub(super) work: Work,
    pub(super) stream: u64,
    /// The profiler's event of the call.
    pub(super) api: Event,
}

/// The thread's open group.
#[derive(Default)]
struct Group {
    depth: i32,
    calls: Vec<Call>,
    creations: Vec<Creation>,
    /// The group's event with the profiler of the communicator that came first.
    event: Option<(Arc<Communicator>, Event)>,
    /// The first error of a call in the group: then nothing is launched.
    failure: Option<Failure>,
}

thread_local! {
    /// Nothing destroys it, so that calls in handlers of the program's end and of a thread's find it still: between
    /// groups it owns nothing.
    static GROUP: RefCell<ManuallyDrop<Group>> = RefCell::new(ManuallyDrop::new(Group::default()));
}

/// ncclGroupStart.
pub(super) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// ncclGroupEnd: the outermost one launches.
pub(super) fn end() -> Outcome<()> {
    let finished = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Err(Failure::usage("ncclGroupEnd without ncclGroupStart"));
        }
        group.depth -= 1;
        Ok((group.depth == 0).then(|| std::mem::take(&mut **group)))
    })?;
    finished.map_or(Ok(()), launch)
}

/// Runs a call's body in a group, in one of its own if none is open. `depth`: how many are open already.
pub(super) fn call(body: impl FnOnce(i32) -> Outcome<()>) -> Outcome<()> {
    let depth = GROUP.with_borrow(|group| group.depth);
    start();
    let called = body(depth);
    if let Err(failure) = &called {
        GROUP.with_borrow_mut(|group| _ = group.failure.get_or_insert(failure.clone()));
    }
    let ended = end();
    called.and(ended)
}

/// A communicator to be made at the group's end.
pub(super) fn create(creation: Creation) -> Outcome<()> {
    call(|_| {
        GROUP.with_borrow_mut(|group| group.creations.push(creation));
        Ok(())
    })
}

/// A collective, at the group's end.
pub(super) fn collective(handle: u64, operation: Operation, stream: u64) -> Outcome<()> {
    call(|depth| {
        let communicator = communicator::communicator(handle)?;
        communicator.check()?;
        check_collective(&operation, &communicator)?;
        if operation.count == 0 {
            return Ok(());
        }
        // What is captured has the number of the next that is not.
        let sequence = if is_captured(stream) {
            communicator.this_sequence(operation.function.name())
        } else {
            communicator.next_sequence(operation.function.name())
        };
        let work = Work::Collective(Operation {
            sequence,
            ..operation
        });
        queue(communicator, work, stream, depth);
        Ok(())
    })
}

/// Sends and receives, at the group's end.
pub(super) fn transfers(handle: u64, transfers: &[Transfer], stream: u64) -> Outcome<()> {
    call(|depth| {
        let communicator = communicator::communicator(handle)?;
        communicator.check()?;
        for transfer in transfers {
            if transfer.peer >= communicator.ranks {
                return Err(Failure::argument(format!(
                    "peer {} in a communicator of {} ranks",
                    transfer.peer, communicator.ranks
                )));
            }
            check_memory("the buffer", transfer.address, transfer.bytes)?;
        }
        for transfer in transfers {
            queue(
                Arc::clone(&communicator),
                Work::Transfer(*transfer),
                stream,
                depth,
            );
        }
        Ok(())
    })
}

fn check_memory(what: &str, address: u64, bytes: usize) -> Outcome<()> {
    if bytes > 0 && device_range(address, bytes).is_err() {
        return Err(Failure::argument(format!(
            "{what} at {address:#x} of {bytes} bytes is not (all) device memory"
        )));
    }
    Ok(())
}

fn check_collective(operation: &Operation, communicator: &Communicator) -> Outcome<()> {
    let is_root = operation.root == communicator.rank;
    let (receives, sends) = match operation.function {
        Function::Reduce => (is_root, true),
        Function::Broadcast => (true, is_root),
        _ => (true, true),
    };
    if operation.root >= communicator.ranks {
        return Err(Failure::argument(format!(
            "root {} in a communicator of {} ranks",
            operation.root, communicator.ranks
        )));
    }
    let (send_bytes, receive_bytes) = operation
        .buffer_bytes(communicator.ranks)
        .ok_or_else(|| Failure::argument(format!("a count of {} is too great", operation.count)))?;
    if sends {
        check_memory("the send buffer", operation.send, send_bytes)?;
    }
    if receives {
        check_memory("the receive buffer", operation.receive, receive_bytes)?;
    }
    Ok(())
}

fn is_captured(stream: u64) -> bool {
    stream_from_handle(stream).is_ok_and(|stream| capture::is_capturing(&stream))
}

/// Puts a call into the thread's group, and tells the profiler.
fn queue(communicator: Arc<Communicator>, work: Work, stream: u64, depth: i32) {
    GROUP.with_borrow_mut(|group| {
        let mut api = Event::NONE;
        if let Some(profiler) = &communicator.profiler {
            let captured = is_captured(stream);
            let group_api = match &group.event {
                Some((_, event)) => *event,
                None => {
                    let event = profiler.group_api(depth + 1, captured);
                    group.event = Some((Arc::clone(&communicator), event));
                    event
                }
            };
            api = match &work {
                Work::Collective(operation) => {
                    profiler.coll_api(group_api, &plan::user_info(operation, stream), captured)
                }
                Work::Transfer(transfer) => profiler.p2p_api(group_api, transfer, stream, captured),
            };
        }
        group.calls.push(Call {
            communicator,
            work,
            stream,
            api,
        });
    });
}

fn launch(group: Group) -> Outcome<()> {
    let group_api = group.event.as_ref().map_or(Event::NONE, |(_, event)| *event);
    let profiler = group
        .event
        .as_ref()
        .and_then(|(communicator, _)| communicator.profiler.as_ref());
    if let Some(profiler) = profiler {
        profiler.group_end(group_api);
    }
    let launched = match group.failure {
        Some(failure) => Err(failure),
        None => communicator::create(group.creations).and_then(|()| launch_calls(group.calls, group_api)),
    };
    if let Some(profiler) = profiler {
        profiler.stop(group_api);
    }
    launched
}

/// One plan a communicator, in the order of their first calls.
fn launch_calls(calls: Vec<Call>, group_api: Event) -> Outcome<()> {
    let mut plans: Vec<(Arc<Communicator>, Vec<Call>)> = Vec::new();
    for call in calls {
        match plans
            .iter_mut()
            .find(|(communicator, _)| Arc::ptr_eq(communicator, &call.communicator))
        {
            Some((_, calls)) => calls.push(call),
            None => plans.push((Arc::clone(&call.communicator), vec![call])),
        }
    }
    for (_, calls) in &plans {
        plan::check(calls)?;
    }
    for (communicator, calls) in plans {
        plan::launch(&communicator, calls, group_api)?;
    }
    Ok(())
}
