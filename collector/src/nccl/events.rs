//! The plugin's events, as NCCL tells of them.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use gputrace_trace::now;

use super::abi::{self, Descriptor, EVENT_OFFSET};
use super::context::Context;
use super::contexts;
use super::entry::{guarded, text};
use super::plans::{next_plan, pop_id, push_id};
use super::raw;
use super::records::{Api, Call, Detail, DetailKind, Operation, Source, trimmed};
use super::types::datatype_bytes;
use crate::host_events::{Lost, Thread, record, with_thread};

/// What a handle is of: its lowest bits. The rest is a number.
const TAG_BITS: u32 = 3;
const OTHER: u64 = 1;
const LAUNCH: u64 = 2;
const GROUP_API: u64 = 3;
const API: u64 = 4;
const OPERATION: u64 = 5;
const DETAIL: u64 = 6;
const PLAN_GROUP: u64 = 7;

/// Numbers of calls, operations and details.
static NEXT: AtomicU64 = AtomicU64::new(1);

fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The number in a handle of that kind; 0 for any other.
fn number(handle: *mut c_void, tag: u64) -> u64 {
    let handle = handle as u64;
    if handle & ((1 << TAG_BITS) - 1) == tag {
        handle >> TAG_BITS
    } else {
        0
    }
}

/// Whether an operation has a root: for the others NCCL's field means nothing.
fn is_rooted(function: &[u8]) -> bool {
    matches!(function, b"Broadcast" | b"Reduce" | b"Gather" | b"Scatter")
}

pub(super) unsafe extern "C" fn start(
    context: *mut c_void,
    handle: *mut *mut c_void,
    descriptor: *mut Descriptor,
) -> c_int {
    guarded(|| {
        // SAFETY: NCCL passes a valid place for the handle, the context that `begin` made, and a descriptor.
        let (context, head) = unsafe {
            *handle = std::ptr::without_provenance_mut(OTHER as usize);
            match (context.cast::<Context>().as_ref(), descriptor.as_ref()) {
                (Some(context), Some(descriptor)) => (context, descriptor),
                _ => return,
            }
        };
        let kind = if context.version < 5 {
            head.kind & 0xff
        } else {
            head.kind
        };
        // SAFETY: the event follows the descriptor's head.
        let event: *const c_void = unsafe { descriptor.byte_add(EVENT_OFFSET) }.cast();
        let given = with_thread(Lost::Operations, |thread| {
            let start = Start {
                context,
                parent: head.parent,
                thread,
            };
            // SAFETY: the kind says what the event is, and the version how much of it there is.
            unsafe { start.event(kind, event) }
        });
        if let Some((number, tag)) = given {
            // SAFETY: as above.
            unsafe { *handle = std::ptr::without_provenance_mut((number << TAG_BITS | tag) as usize) };
        }
        // SAFETY: as above.
        unsafe { raw::start(context, kind, descriptor.cast(), (*handle) as usize) };
    })
}

/// The start of an event.
struct Start<'a> {
    context: &'a Context,
    parent: *mut c_void,
    thread: &'a mut Thread,
}

impl Start<'_> {
    /// Gives what the handle is to be: number and tag.
    ///
    /// # Safety
    /// `event` is an event of that kind, of the context's version.
    unsafe fn event(mut self, kind: u64, event: *const c_void) -> (u64, u64) {
        // SAFETY: by the caller's promise, each of them.
        unsafe {
            match kind {
                abi::GROUP_API => self.group_api(),
                abi::COLL_API => self.coll_api(&*event.cast()),
                abi::P2P_API => self.p2p_api(&*event.cast()),
                abi::KERNEL_LAUNCH => self.kernel_launch((*event.cast::<abi::KernelLaunch>()).stream),
                abi::GROUP => {
                    self.thread.nccl.launched = true;
                    (0, PLAN_GROUP)
                }
                abi::COLL => self.collective(event.cast()),
                abi::P2P => self.point_to_point(event.cast()),
                abi::CE_COLL => self.copies(event.cast()),
                abi::PROXY_OP => self.proxy_operation(&*event.cast()),
                abi::PROXY_STEP => {
                    let step = (*event.cast::<abi::ProxyStep>()).step;
                    let parent = number(self.parent, DETAIL);
                    self.detail(
                        DetailKind::ProxyStep,
                        parent,
                        [step.cast_unsigned().into(), 0, 0, 0],
                    )
                }
                abi::KERNEL_CHANNEL => {
                    let channel = &*event.cast::<abi::KernelChannel>();
                    let parent = number(self.parent, OPERATION);
                    self.detail(
                        DetailKind::Channel,
                        parent,
                        [channel.channel.into(), channel.timer, 0, 0],
                    )
                }
                abi::KERNEL_PHASE => {
                    let phase = &*event.cast::<abi::KernelPhase>();
                    // Of the operation, or of its kernel on the channel.
                    let parent = number(self.parent, OPERATION).max(number(self.parent, DETAIL));
                    let name = self.thread.text(text(phase.name));
                    self.detail(
                        DetailKind::Phase,
                        parent,
                        [phase.channel.into(), phase.timer, name, 0],
                    )
                }
                _ => (0, OTHER),
            }
        }
    }

    fn group_api(&mut self) -> (u64, u64) {
        let state = &mut self.thread.nccl;
        if state.group != 0 {
            // Its stop never came on this thread.
            pop_id();
        }
        state.group = next_plan();
        state.plan = 0;
        (state.launched, state.captured) = (false, false);
        push_id(state.group);
        (state.group, GROUP_API)
    }

    fn kernel_launch(&mut self, stream: *mut c_void) -> (u64, u64) {
        let plan = next_plan();
        let state = &mut self.thread.nccl;
        if state.launching != 0 {
            // Its stop never came on this thread.
            pop_id();
        }
        (state.launching, state.plan, state.stream) = (plan, plan, stream as u64);
        state.launched = true;
        let captured = state.captured.then_some(state.group);
        push_id(plan);
        if let Some(group) = captured {
            let fields = [
                plan,
                self.context.communicator,
                u64::from(self.context.rank),
                group,
            ];
            self.thread.push(Lost::Operations, record::NCCL_CAPTURED, &fields);
        }
        (plan, LAUNCH)
    }

    /// The plan of an operation that is told of now: that of the kernel that was just launched; else the group's number,
    /// or where NCCL does not tell of launches that of the program's call.
    fn plan(&self) -> Option<u64> {
        let state = &self.thread.nccl;
        let plan = if state.plan != 0 {
            state.plan
        } else if self.context.version < 5 {
            state.calls.plan()
        } else {
            state.group
        };
        Some(plan).filter(|&plan| plan != 0)
    }

    fn coll_api(&mut self, event: &abi::CollApi) -> (u64, u64) {
        let function = text(event.function);
        let api = Api {
            function: self.thread.text(function),
            datatype: self.thread.text(text(event.datatype)),
            count: event.count as u64,
            root: is_rooted(function.bytes).then_some(event.root),
            stream: Some(event.stream as u64),
            graph_captured: event.graph_captured != 0,
            // Before version 7 these are bytes of nothing in particular, within the descriptor all the same.
            tag: (self.context.version >= 7).then_some(event.user_tag),
            ..self.no_api()
        };
        self.api(&api)
    }

    fn p2p_api(&mut self, event: &abi::P2pApi) -> (u64, u64) {
        let api = Api {
            function: self.thread.text(text(event.function)),
            datatype: self.thread.text(text(event.datatype)),
            count: event.count as u64,
            is_p2p: true,
            stream: Some(event.stream as u64),
            graph_captured: event.graph_captured != 0,
            tag: (self.context.version >= 7).then_some(event.user_tag),
            ..self.no_api()
        };
        self.api(&api)
    }

    fn no_api(&self) -> Api {
        Api {
            number: next_number(),
            group: self.thread.nccl.group,
            start_ns: now().0,
            communicator: self.context.communicator,
            rank: self.context.rank,
            function: 0,
            datatype: 0,
            count: 0,
            root: None,
            is_p2p: false,
            stream: None,
            graph_captured: false,
            tag: None,
            call: self.thread.nccl.calls.current(self.context.communicator),
        }
    }

    fn api(&mut self, api: &Api) -> (u64, u64) {
        self.thread.nccl.captured |= api.graph_captured;
        self.thread
            .push(Lost::Operations, record::NCCL_API, trimmed(&api.fields()));
        (api.number, API)
    }

    /// # Safety
    /// `event` is of the context's version.
    unsafe fn collective(&mut self, event: *const abi::Coll) -> (u64, u64) {
        // Fields are read one by one: older versions' events end before later ones' fields.
        // SAFETY: there in all versions.
        let (sequence, function, count, root, datatype, channels, warps, algorithm, protocol) = unsafe {
            (
                (*event).sequence,
                text((*event).function),
                (*event).count,
                (*event).root,
                text((*event).datatype),
                (*event).channels,
                (*event).warps,
                (*event).algorithm,
                (*event).protocol,
            )
        };
        let bytes = datatype_bytes(std::str::from_utf8(datatype.bytes).unwrap_or_default());
        let call = self.call_of(function.bytes, bytes * count as u64);
        let mut operation = Operation {
            sequence: Some(sequence),
            root: is_rooted(function.bytes).then_some(root),
            function: self.thread.text(function),
            datatype: self.thread.text(datatype),
            count: count as u64,
            algorithm: self.optional(algorithm),
            protocol: self.optional(protocol),
            channels,
            warps,
            call,
            ..self.no_operation(Source::Plugin)
        };
        if self.context.version >= 7 {
            // SAFETY: there from version 7 on.
            unsafe {
                operation.variant = self.optional((*event).kernel_variant);
                operation.symmetric = (*event).is_symmetric != 0;
                operation.tag = Some((*event).user_tag);
            }
        }
        self.operation(&operation)
    }

    /// # Safety
    /// `event` is of the context's version.
    unsafe fn point_to_point(&mut self, event: *const abi::P2p) -> (u64, u64) {
        // SAFETY: there in all versions.
        let (function, datatype, count, peer, channels) = unsafe {
            (
                text((*event).function),
                text((*event).datatype),
                (*event).count,
                (*event).peer,
                (*event).channels,
            )
        };
        let bytes = datatype_bytes(std::str::from_utf8(datatype.bytes).unwrap_or_default());
        let call = self.call_of(function.bytes, bytes * count as u64);
        let tag = if self.context.version >= 7 {
            // SAFETY: there from version 7 on.
            Some(unsafe { (*event).user_tag })
        } else {
            None
        };
        let operation = Operation {
            function: self.thread.text(function),
            datatype: self.thread.text(datatype),
            count: count as u64,
            peer: Some(peer),
            channels,
            tag,
            call,
            ..self.no_operation(Source::Plugin)
        };
        self.operation(&operation)
    }

    /// # Safety
    /// `event` is of the context's version.
    unsafe fn copies(&mut self, event: *const abi::CeColl) -> (u64, u64) {
        // SAFETY: there in all versions that have this event.
        let (sequence, function, count, root, datatype, strategy, stream) = unsafe {
            (
                (*event).sequence,
                text((*event).function),
                (*event).count,
                (*event).root,
                text((*event).datatype),
                (*event).sync_strategy,
                (*event).stream,
            )
        };
        let tag = if self.context.version >= 7 {
            // SAFETY: there from version 7 on.
            Some(unsafe { (*event).user_tag })
        } else {
            None
        };
        let operation = Operation {
            sequence: Some(sequence),
            root: is_rooted(function.bytes).then_some(root),
            function: self.thread.text(function),
            datatype: self.thread.text(datatype),
            count: count as u64,
            variant: self.optional(strategy),
            stream: Some(stream as u64),
            tag,
            // Copies are launched while the event is open or after: only the group's number is around all of them.
            plan: Some(self.thread.nccl.group).filter(|&plan| plan != 0),
            ..self.no_operation(Source::CopyEngine)
        };
        self.operation(&operation)
    }

    /// Where NCCL tells of no calls, the call that an operation seems to be of.
    fn call_of(&mut self, function: &[u8], bytes: u64) -> Option<Call> {
        let communicator = self.context.communicator;
        (self.context.version < 5)
            .then(|| self.thread.nccl.calls.find(communicator, function, bytes))
            .flatten()
    }

    fn optional(&mut self, name: *const c_char) -> Option<u64> {
        (!name.is_null()).then(|| self.thread.text(text(name)))
    }

    fn no_operation(&self, source: Source) -> Operation {
        Operation {
            source,
            start_ns: now().0,
            duration_ns: 0,
            communicator: self.context.communicator,
            rank: self.context.rank,
            sequence: None,
            function: 0,
            datatype: 0,
            count: 0,
            root: None,
            peer: None,
            algorithm: None,
            protocol: None,
            variant: None,
            channels: 0,
            warps: 0,
            symmetric: false,
            plan: self.plan(),
            stream: (self.thread.nccl.plan != 0).then_some(self.thread.nccl.stream),
            tag: None,
            api: Some(number(self.parent, API)).filter(|&api| api != 0),
            number: next_number(),
            call: None,
        }
    }

    fn operation(&mut self, operation: &Operation) -> (u64, u64) {
        self.thread
            .push(Lost::Operations, record::OPERATION, trimmed(&operation.fields()));
        (operation.number, OPERATION)
    }

    fn proxy_operation(&mut self, event: &abi::ProxyOp) -> (u64, u64) {
        // With PXN a process's proxy works for others: the parent is then a handle that another process's plugin gave.
        let parent = if event.pid.cast_unsigned() == std::process::id() {
            number(self.parent, OPERATION)
        } else {
            0
        };
        let channel = u64::from(event.channel) | u64::from(event.is_send != 0) << 8;
        let values =
            [event.peer, event.steps, event.chunk_bytes].map(|value| u64::from(value.cast_unsigned()));
        let [peer, steps, chunk] = values;
        self.detail(DetailKind::ProxyOperation, parent, [channel, peer, steps, chunk])
    }

    fn detail(&mut self, kind: DetailKind, parent: u64, values: [u64; 4]) -> (u64, u64) {
        let detail = Detail {
            kind,
            number: next_number(),
            parent,
            start_ns: now().0,
            communicator: self.context.communicator,
            rank: self.context.rank,
            values,
        };
        self.thread
            .push(Lost::Details, record::NCCL_DETAIL, trimmed(&detail.fields()));
        (detail.number, DETAIL)
    }
}

pub(super) unsafe extern "C" fn stop(handle: *mut c_void) -> c_int {
    guarded(|| {
        raw::stop(handle);
        let (number, tag) = (handle as u64 >> TAG_BITS, handle as u64 & ((1 << TAG_BITS) - 1));
        match tag {
            LAUNCH => {
                with_thread(Lost::Operations, |thread| {
                    // On another thread, or once more, it means nothing.
                    if thread.nccl.launching == number {
                        thread.nccl.launching = 0;
                        pop_id();
                    }
                });
            }
            GROUP_API => {
                with_thread(Lost::Operations, |thread| {
                    if thread.nccl.group == number {
                        thread.nccl.group = 0;
                        pop_id();
                    }
                    let launched = u64::from(thread.nccl.launched);
                    thread.push(Lost::Operations, record::NCCL_GROUP_END, &[number, launched]);
                });
            }
            PLAN_GROUP => {
                with_thread(Lost::Operations, |thread| thread.nccl.plan = 0);
            }
            DETAIL => {
                let end_ns = now().0.cast_unsigned();
                with_thread(Lost::Details, |thread| {
                    thread.push(Lost::Details, record::NCCL_DETAIL_END, &[number, end_ns]);
                });
            }
            _ => {}
        }
    })
}

pub(super) unsafe extern "C" fn state(handle: *mut c_void, state: c_int, arguments: *mut c_void) -> c_int {
    guarded(|| {
        let number = number(handle, DETAIL);
        if number == 0 {
            return;
        }
        let has_value = matches!(
            state,
            abi::SEND_WAIT
                | abi::RECEIVE_WAIT
                | abi::RECEIVE_FLUSH_WAIT
                | abi::KERNEL_CHANNEL_STOP
                | abi::KERNEL_PHASE_STOP
        );
        let value = if has_value && !arguments.is_null() {
            // SAFETY: NCCL passes a union of 8 bytes (ncclProfilerEventStateArgs_t).
            unsafe { arguments.cast::<u64>().read_unaligned() }
        } else {
            0
        };
        raw::state(handle, state, has_value.then_some(value));
        let time_ns = now().0.cast_unsigned();
        let fields = [number, u64::from(state.cast_unsigned()), time_ns, value];
        with_thread(Lost::Details, |thread| {
            thread.push(Lost::Details, record::NCCL_DETAIL_STATE, &fields);
        });
    })
}

pub(super) unsafe extern "C" fn finalize(context: *mut c_void) -> c_int {
    guarded(|| {
        // SAFETY: the context that `begin` made; never freed.
        if let Some(context) = unsafe { context.cast::<Context>().as_ref() } {
            contexts::end(context);
        }
    })
}
