//! A plan: what a group asks of one communicator, launched as one kernel.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Condvar, Mutex};

use super::communicator::Communicator;
use super::errors::{self, Failure, Outcome};
use super::group::{Call, Work};
use super::mesh::Mesh;
use super::model::{Choice, Function};
use super::operation::{Operation, SCALED_SUM, Transfer};
use super::profiler::{CollectiveInfo, Event, Profiler, Within};
use super::{collective, lock, point_to_point, profiler, reduce, timing};
use crate::config::config;
use crate::device::{KernelResources, OpKind, Stream, Submission, Work as KernelWork, traffic};
use crate::driver::graph::{NodeWork, capture};
use crate::driver::{LaunchConfig, launch_of_library, order_with_default, stream_from_handle, with_device};

/// A collective for the profiler, as the caller has it.
pub(super) fn user_info(operation: &Operation, stream: u64) -> CollectiveInfo {
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
            count: operation.bytes(),
            datatype: c"ncclInt8",
            ..info
        },
        _ => info,
    }
}

/// NCCL's rule for sends to oneself: they need their receives in the same group.
pub(super) fn check(calls: &[Call]) -> Outcome<()> {
    let own = |sends: bool| {
        calls
            .iter()
            .filter(|call| match &call.work {
                Work::Transfer(transfer) => {
                    transfer.sends == sends && transfer.peer == call.communicator.rank
                }
                Work::Collective(_) => false,
            })
            .count()
    };
    match own(true).cmp(&own(false)) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(Failure::usage(
            "a send to oneself without a matching receive in the same group",
        )),
        std::cmp::Ordering::Less => Err(Failure::usage(
            "a receive from oneself without a matching send in the same group",
        )),
    }
}

/// A plan's operations in the order in which the kernel takes them.
#[derive(Default)]
struct Plan {
    collectives: Vec<(Operation, Choice, Event)>,
    /// Each with its event and how many channels it uses.
    transfers: Vec<(Transfer, Event, u8)>,
}

impl Plan {
    fn of(communicator: &Communicator, calls: &[Call]) -> Self {
        let mut plan = Self::default();
        let (mut operations, mut events) = (Vec::new(), Vec::new());
        for call in calls {
            match &call.work {
                Work::Collective(operation) => {
                    operations.push(*operation);
                    events.push(call.api);
                }
                Work::Transfer(transfer) => {
                    let bytes = transfer.bytes as u64;
                    let choice = timing::send(bytes, communicator.rank, transfer.peer, &communicator.mesh);
                    plan.transfers.push((*transfer, call.api, choice.channels));
                }
            }
        }
        let choices = timing::collectives(&operations, &communicator.mesh);
        plan.collectives = operations
            .into_iter()
            .zip(choices)
            .zip(events)
            .map(|((operation, choice), event)| (operation, choice, event))
            .collect();
        plan.transfers = in_rounds(plan.transfers, communicator.rank, communicator.ranks);
        plan
    }

    /// The kernel's name, channels and threads.
    fn kernel(&self) -> (&'static CStr, u32, u32) {
        let choices = || self.collectives.iter().map(|(_, choice, _)| choice);
        let channels = choices()
            .map(|choice| u32::from(choice.channels))
            .max()
            .unwrap_or(1);
        let threads = choices().map(|choice| choice.threads).max().unwrap_or(32);
        let by_transfers: u32 = self
            .transfers
            .iter()
            .map(|(.., channels)| u32::from(*channels))
            .sum();
        // Sends and receives take 640 threads and at most 32 channels together.
        let (channels, threads) = if self.transfers.is_empty() {
            (channels, threads)
        } else {
            (channels.max(by_transfers.min(32)), threads.max(640))
        };
        let name = self
            .collectives
            .first()
            .map_or(c"ncclDevKernel_SendRecv", |(operation, choice, _)| {
                kernel_name(operation, choice)
            });
        (name, channels, threads)
    }
}

/// NCCL's order of sends and receives: round r has the receive from the rank r before this one and the send to the rank
/// r after it; those of one peer stay in their order.
fn in_rounds(mut transfers: Vec<(Transfer, Event, u8)>, rank: u32, ranks: u32) -> Vec<(Transfer, Event, u8)> {
    let mut nth = BTreeMap::new();
    let mut keyed: Vec<_> = transfers
        .drain(..)
        .map(|one| {
            let Transfer { sends, peer, .. } = one.0;
            let round = if sends {
                peer + ranks - rank
            } else {
                rank + ranks - peer
            } % ranks;
            let pass: &mut u32 = nth.entry((sends, peer)).or_default();
            *pass += 1;
            ((*pass, round, sends), one)
        })
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, one)| one).collect()
}

/// The kernel's name, kept for ever: CUPTI hands the pointer out.
fn kernel_name(operation: &Operation, choice: &Choice) -> &'static CStr {
    static NAMES: Mutex<BTreeMap<String, &'static CStr>> = Mutex::new(BTreeMap::new());
    let function = operation.function.name().to_string_lossy();
    let datatype = reduce::datatype(operation.datatype).map_or("", |(.., name)| name);
    let shape = if choice.algorithm == c"TREE" {
        "TREE"
    } else {
        "RING"
    };
    let reduces = matches!(
        operation.function,
        Function::AllReduce | Function::ReduceScatter | Function::Reduce
    );
    let name = if config().nccl >= 23_100 {
        // Since 2.31 neither the reduction nor the protocol.
        if reduces {
            format!("ncclDevKernel_{function}_{datatype}_{shape}")
        } else {
            format!("ncclDevKernel_{function}_{shape}")
        }
    } else if reduces {
        // The name only tells ring from tree; the protocol in it is always LL.
        let reduction = reduce::operation_name(operation.reduction).unwrap_or("Sum");
        format!("ncclDevKernel_{function}_{reduction}_{datatype}_{shape}_LL")
    } else {
        format!("ncclDevKernel_{function}_{shape}_LL")
    };
    let mut names = lock(&NAMES);
    names
        .entry(name.clone())
        .or_insert_with(|| Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str()))
}

/// Launches what a group asks of a communicator.
pub(super) fn launch(communicator: &Arc<Communicator>, calls: Vec<Call>, group_api: Event) -> Outcome<()> {
    with_device(communicator.device, || {
        let calls = if communicator.ranks == 1 {
            copy_for_one_rank(calls)?
        } else {
            calls
        };
        if calls.is_empty() {
            return Ok(());
        }
        launch_kernel(communicator, &calls, group_api)
    })
    .map_err(|code| Failure::cuda("cuCtxPushCurrent", code))?
}

/// A communicator of one rank has nobody to talk to: its collectives are copies, or nothing in place. Gives what needs
/// a kernel all the same.
fn copy_for_one_rank(calls: Vec<Call>) -> Outcome<Vec<Call>> {
    unsafe extern "C" {
        fn cuMemcpyDtoDAsync_v2(destination: u64, source: u64, bytes: usize, stream: u64) -> u32;
    }
    let mut others = Vec::new();
    for call in calls {
        match &call.work {
            Work::Collective(operation) if operation.reduction != SCALED_SUM => {
                if operation.send != operation.receive {
                    let (to, from, bytes) = (operation.receive, operation.send, operation.bytes());
                    // SAFETY: our own function; it checks its arguments itself.
                    let code = unsafe { cuMemcpyDtoDAsync_v2(to, from, bytes, call.stream) };
                    if code != 0 {
                        return Err(Failure::cuda("cuMemcpyDtoDAsync", code));
                    }
                }
            }
            _ => others.push(call),
        }
    }
    Ok(others)
}

fn launch_kernel(communicator: &Arc<Communicator>, calls: &[Call], group_api: Event) -> Outcome<()> {
    let cuda = |code| Failure::cuda("finding the stream", code);
    let find = |handle| {
        let stream = stream_from_handle(handle).map_err(cuda)?;
        if stream.device != communicator.device {
            return Err(Failure::argument(format!(
                "the stream belongs to device {} and the communicator to device {}",
                stream.device, communicator.device
            )));
        }
        Ok(stream)
    };
    let handle = calls[0].stream;
    let stream = find(handle)?;
    let mut others: Vec<Arc<Stream>> = Vec::new();
    for call in &calls[1..] {
        let other = find(call.stream)?;
        if other.id != stream.id && others.iter().all(|known| known.id != other.id) {
            others.push(other);
        }
    }
    let plan = Plan::of(communicator, calls);
    let profiler = communicator.profiler.as_ref();
    // A kernel of nothing but silent operations has nobody who would tell of it.
    let tells = plan
        .collectives
        .iter()
        .any(|(operation, ..)| !is_silent(operation))
        || !plan.transfers.is_empty();
    let profiler = profiler.filter(|_| tells);
    if capture::is_capturing(&stream) {
        let told = (profiler, group_api);
        return capture_kernel(communicator, &plan, told, (&stream, handle), &others);
    }
    // The kernel waits for all of the group's streams and for the communicator's last kernel.
    for other in &others {
        stream.wait_for(other.record());
    }
    let mut last = lock(&communicator.last);
    if let Some(record) = last.take() {
        stream.wait_for(record);
    }
    let launch_event = profiler.map_or(Event::NONE, |profiler| profiler.kernel_launch(group_api, handle));
    // The proxy is told of operations after the kernel was launched; the kernel may run before that.
    let told = profiler
        .is_some_and(Profiler::wants_within)
        .then(Told::default)
        .map(Arc::new);
    let (name, channels, threads) = plan.kernel();
    let code = launch_of_library(
        &LaunchConfig::new([channels, 1, 1], [threads, 1, 1], 0, handle),
        name,
        |call| {
            order_with_default(&stream)?;
            stream.submit(Submission {
                correlation: call.correlation,
                kind: kernel_kind((name, channels, threads)),
                work: kernel(communicator, &plan, told.clone())(),
                graph: None,
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
    if let Some(profiler) = profiler {
        profiler.stop(launch_event);
        let group = profiler.group(group_api);
        // All of the plan's operations begin before the first ends; "ends" means enqueued.
        let (mut begun, mut within) = (Vec::new(), Vec::new());
        for (operation, choice, api) in plan
            .collectives
            .iter()
            .filter(|(operation, ..)| !is_silent(operation))
        {
            let event = profiler.coll(*api, group, &task_info(operation, handle), choice);
            begun.push(event);
            within.push(Within {
                operation: event,
                channels: choice.channels,
                bytes: operation.bytes() as u64,
            });
        }
        for (transfer, api, channels) in &plan.transfers {
            let event = profiler.p2p(*api, group, transfer, *channels);
            begun.push(event);
            within.push(Within {
                operation: event,
                channels: *channels,
                bytes: transfer.bytes as u64,
            });
        }
        if let Some(told) = told {
            told.give(within);
        }
        for event in begun {
            profiler.stop(event);
        }
        profiler.stop(group);
    }
    if code == 0 {
        Ok(())
    } else {
        Err(Failure::cuda("cuLaunchKernelEx", code))
    }
}

/// What the proxy is told of a kernel's operations.
#[derive(Default)]
struct Told {
    operations: Mutex<Option<Vec<Within>>>,
    given: Condvar,
}

impl Told {
    fn give(&self, operations: Vec<Within>) {
        *lock(&self.operations) = Some(operations);
        self.given.notify_all();
    }

    fn wait(&self) -> Vec<Within> {
        let operations = self
            .given
            .wait_while(lock(&self.operations), |operations| operations.is_none());
        operations
            .map(|mut operations| operations.take())
            .ok()
            .flatten()
            .unwrap_or_default()
    }
}

/// Whether the profiler is told only of an operation's call.
fn is_silent(operation: &Operation) -> bool {
    operation.function == Function::Broadcast && profiler::broadcasts_are_silent()
}

/// A kernel as CUPTI describes it: its name, channels and threads.
fn kernel_kind((name, channels, threads): (&'static CStr, u32, u32)) -> OpKind {
    OpKind::Kernel {
        name,
        grid: [channels, 1, 1],
        block: [threads, 1, 1],
        resources: KernelResources {
            registers: 96,
            ..KernelResources::default()
        },
    }
}

/// Puts the kernel into the graph that is captured. A profiler hears of its launch now, and of nothing when the graph
/// runs (NCCL tells of that only where proxies take part).
fn capture_kernel(
    communicator: &Arc<Communicator>,
    plan: &Plan,
    (profiler, group_api): (Option<&Profiler>, Event),
    (stream, handle): (&Stream, u64),
    others: &[Arc<Stream>],
) -> Outcome<()> {
    let event = profiler.map_or(Event::NONE, |profiler| profiler.kernel_launch(group_api, handle));
    let (name, channels, threads) = plan.kernel();
    // At each launch of the graph it comes after the communicator's last kernel, and the next comes after it.
    let (before, after) = (Arc::clone(communicator), Arc::clone(communicator));
    let work = NodeWork::Operation {
        kind: kernel_kind((name, channels, threads)),
        make: Arc::new(kernel(communicator, plan, None)),
        around: Some((
            Arc::new(move |stream: &Stream| {
                if let Some(record) = lock(&before.last).take() {
                    stream.wait_for(record);
                }
            }),
            Arc::new(move |stream: &Stream| *lock(&after.last) = Some(stream.record())),
        )),
    };
    let joining: Vec<u32> = others.iter().map(|other| other.id).collect();
    let code = launch_of_library(
        &LaunchConfig::new([channels, 1, 1], [threads, 1, 1], 0, handle),
        name,
        |_| capture::append(stream, work, &joining),
    );
    if let Some(profiler) = profiler {
        profiler.stop(event);
    }
    if code == 0 {
        Ok(())
    } else {
        Err(Failure::cuda("cuLaunchKernelEx", code))
    }
}

/// Counts what the kernel brings over the device's links: what a ring moves, whichever algorithm was chosen.
fn count_traffic(device: u32, ranks: u32, operations: &[(Operation, i64)], transfers: &[Transfer]) {
    let (mut sent, mut received) = (0, 0);
    for (operation, _) in operations {
        let bytes = operation.model_bytes(ranks);
        let others = u64::from(ranks - 1) * bytes / u64::from(ranks);
        let moved = match operation.function {
            Function::AllReduce => 2 * others,
            Function::AllGather | Function::ReduceScatter => others,
            _ => bytes,
        };
        sent += moved;
        received += moved;
    }
    for transfer in transfers {
        if transfer.sends {
            sent += transfer.bytes as u64;
        } else {
            received += transfer.bytes as u64;
        }
    }
    traffic::add(device, traffic::of_collectives(), sent, received);
}

/// Makes what the kernel does: collectives, then sends and receives.
fn kernel(
    communicator: &Arc<Communicator>,
    plan: &Plan,
    told: Option<Arc<Told>>,
) -> impl Fn() -> KernelWork + Send + Sync + 'static {
    let watched = told.map(|told| (told, Arc::clone(communicator)));
    let mesh = Arc::clone(&communicator.mesh);
    let running = Arc::clone(&communicator.running);
    let operations: Vec<(Operation, i64)> = plan
        .collectives
        .iter()
        .map(|(operation, choice, _)| (*operation, choice.transfer_ns))
        .collect();
    let transfers: Vec<Transfer> = plan.transfers.iter().map(|(transfer, ..)| *transfer).collect();
    let work = Arc::new((operations, transfers));
    let (device, ranks) = (communicator.device, communicator.ranks);
    move || {
        let (mesh, running, work) = (Arc::clone(&mesh), Arc::clone(&running), Arc::clone(&work));
        let watched = watched.clone();
        Box::new(move |start_ns: i64| {
            let _running = lock(&running);
            let watching = watched.as_ref().and_then(|(told, communicator)| {
                let profiler = communicator.profiler.as_ref()?;
                Some((profiler, profiler.kernel_begins(&told.wait(), start_ns)))
            });
            let (operations, transfers) = &*work;
            count_traffic(device, ranks, operations, transfers);
            let end_ns = run(&mesh, operations, transfers, start_ns).unwrap_or_else(|failure| {
                errors::note(&failure);
                if mesh.inbox.failure().is_none() {
                    // Found out here first: nobody may wait for this rank.
                    mesh.inbox.fail(failure.clone());
                    mesh.abort(failure);
                }
                point_to_point::cut_short(start_ns)
            });
            if let Some((profiler, watching)) = watching {
                profiler.kernel_ends(watching, end_ns);
            }
            end_ns
        })
    }
}

fn run(mesh: &Mesh, operations: &[(Operation, i64)], transfers: &[Transfer], start_ns: i64) -> Outcome<i64> {
    if let Some(failure) = mesh.inbox.failure() {
        return Err(failure);
    }
    let mut at_ns = start_ns;
    for (operation, transfer_ns) in operations {
        at_ns = collective::run(mesh, operation, *transfer_ns, at_ns)?;
    }
    if !transfers.is_empty() {
        at_ns = point_to_point::run(mesh, transfers, at_ns)?;
    }
    Ok(at_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_and_receives_go_in_rounds() {
        // An all-to-all of 3 ranks as rank 1 calls it: sends and receives to 0, 1, 2.
        let one = |sends: bool, peer: u32| {
            let transfer = Transfer {
                sends,
                peer,
                address: 0,
                count: 1,
                datatype: 0,
                bytes: 1,
            };
            (transfer, Event::NONE, 1)
        };
        let calls = (0..3)
            .flat_map(|peer| [one(true, peer), one(false, peer)])
            .collect();
        let order: Vec<(bool, u32)> = in_rounds(calls, 1, 3)
            .iter()
            .map(|(transfer, ..)| (transfer.sends, transfer.peer))
            .collect();
        let expected = [
            (false, 1),
            (true, 1),
            (false, 0),
            (true, 2),
            (false, 2),
            (true, 0),
        ];
        assert_eq!(order, expected);
        // A second message to the same peer waits for the next pass.
        let calls = vec![one(true, 2), one(true, 2), one(false, 0)];
        let order: Vec<bool> = in_rounds(calls, 1, 3).iter().map(|(one, ..)| one.sends).collect();
        assert_eq!(order, [false, true, true]);
    }
}
