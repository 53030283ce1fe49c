//! Loads the profiler plugin as NCCL does and plays its events in NCCL's order.
//!
//! NCCL_PROFILER_PLUGIN names it: a path, a library, or X for libnccl-profiler-X.so; "none" is none. The newest of the
//! interface's versions that it offers and that the modelled NCCL has is used (4 to 7; older ones are not known here).
//! What an older interface has no room for is filled with rubbish, so that a plugin that reads it notices.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use super::model::Choice;
use super::operation::Transfer;
use super::profiler_abi::{
    COLL, COLL_API, Coll, CollApi, Descriptor, Details, GROUP, GROUP_API, GROUP_END_API_START,
    GROUP_START_API_STOP, GroupApi, KERNEL_CHANNEL, KERNEL_CHANNEL_STOP, KERNEL_LAUNCH, KERNEL_PHASE,
    KERNEL_PHASE_STOP, KernelChannel, KernelLaunch, KernelPhase, P2P, P2P_API, P2p, P2pApi, PROXY_OP,
    PROXY_OP_IN_PROGRESS, PROXY_STEP, Plugin, ProxyOp, ProxyStep, RECEIVE_FLUSH_WAIT, RECEIVE_GPU_WAIT,
    RECEIVE_WAIT, SEND_GPU_WAIT, SEND_PEER_WAIT, SEND_WAIT,
};
use crate::config::config;

/// A plugin, and its interface's version.
#[derive(Clone, Copy)]
struct Loaded {
    plugin: &'static Plugin,
    version: u32,
}

fn plugin() -> Option<Loaded> {
    static PLUGIN: OnceLock<Option<Loaded>> = OnceLock::new();
    *PLUGIN.get_or_init(load)
}

/// The newest interface of the modelled NCCL.
fn newest() -> u32 {
    match config().nccl {
        23_100.. => 7,
        22_900.. => 6,
        22_800.. => 5,
        _ => 4,
    }
}

/// Whether broadcasts are enqueued without the profiler's mask, so that only their calls are told of: NCCL 2.29.2 to
/// 2.30.7, unless NCCL_ALLGATHERV_ENABLE is 0.
pub(super) fn broadcasts_are_silent() -> bool {
    (22_902..=23_007).contains(&config().nccl)
        && !std::env::var("NCCL_ALLGATHERV_ENABLE").is_ok_and(|value| value == "0")
}

fn open(name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: the user names a library to be loaded into this process, as with NCCL itself.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(handle)
}

fn load() -> Option<Loaded> {
    let name = std::env::var("NCCL_PROFILER_PLUGIN").ok();
    let library = match name.as_deref() {
        Some("none") => return None,
        Some(name) => open(name).or_else(|| {
            let is_file = name.contains('/') || name.starts_with("lib") && name.ends_with(".so");
            if is_file {
                None
            } else {
                open(&format!("libnccl-profiler-{name}.so"))
            }
        })?,
        None => open("libnccl-profiler.so")?,
    };
    let newest = newest();
    [
        (7, c"ncclProfiler_v7"),
        (6, c"ncclProfiler_v6"),
        (5, c"ncclProfiler_v5"),
        (4, c"ncclProfiler_v4"),
    ]
    .into_iter()
    .filter(|(version, _)| *version <= newest)
    .find_map(|(version, symbol)| {
        // SAFETY: `library` is open; NCCL's contract is that a symbol of this name is the plugin's table of
        // that version, which lives as long as the library (never closed here).
        let plugin = unsafe { libc::dlsym(library, symbol.as_ptr()).cast::<Plugin>().as_ref() }?;
        Some(Loaded { plugin, version })
    })
}

/// What the plugin wants to be told: one mask for all communicators. It keeps the address and may change it at any time.
static MASK: AtomicI32 = AtomicI32::new(0);

/// What the proxy and the device tell of, which needs an operation to be told of.
const WITHIN: u64 = PROXY_OP | PROXY_STEP | KERNEL_CHANNEL | KERNEL_PHASE;

/// The plugin's state for one communicator.
pub(super) struct Profiler {
    plugin: &'static Plugin,
    version: u32,
    context: *mut c_void,
    rank: c_int,
    ranks: c_int,
    /// Nodes that the ranks are on.
    nodes: u32,
}

// SAFETY: NCCL calls a plugin's functions from any thread; plugins must cope, and so the context may cross threads.
unsafe impl Send for Profiler {}
// SAFETY: as above.
unsafe impl Sync for Profiler {}

/// No address, no length, and no number of anything.
const RUBBISH: u64 = 0x6b6b_6b6b_6b6b_6b6b;

/// An event that was started; ends it.
#[derive(Clone, Copy)]
pub(super) struct Event(*mut c_void);

// SAFETY: a plugin's handle may be used on any thread.
unsafe impl Send for Event {}

impl Event {
    /// No event: what a mask that excludes it leaves.
    pub(super) const NONE: Self = Self(null_mut());
}

/// A collective for the plugin's eyes.
pub(super) struct CollectiveInfo {
    pub(super) sequence: u64,
    pub(super) function: &'static CStr,
    pub(super) send: u64,
    pub(super) receive: u64,
    pub(super) count: usize,
    pub(super) datatype: &'static CStr,
    pub(super) root: u32,
    pub(super) stream: u64,
}

impl Profiler {
    /// Tells the plugin, if there is one, of a new communicator.
    pub(super) fn new(
        communicator: u64,
        name: Option<&CStr>,
        nodes: u32,
        ranks: u32,
        rank: u32,
    ) -> Option<Self> {
        let Loaded { plugin, version } = plugin()?;
        let (mut context, mask) = (null_mut(), MASK.as_ptr());
        let rank = rank.cast_signed();
        let name = name.map_or(null(), CStr::as_ptr);
        // SAFETY: the plugin's init by its contract; all places are valid, and the mask's stays so.
        let failed = unsafe {
            let (nodes, ranks) = (nodes.cast_signed(), ranks.cast_signed());
            if version >= 5 {
                let init = plugin.init.since_5;
                init(
                    &raw mut context,
                    communicator,
                    mask,
                    name,
                    nodes,
                    ranks,
                    rank,
                    None,
                )
            } else {
                let init = plugin.init.of_4;
                init(
                    &raw mut context,
                    mask,
                    name,
                    communicator,
                    nodes,
                    ranks,
                    rank,
                    None,
                )
            }
        } != 0;
        (!failed && !context.is_null()).then_some(Self {
            plugin,
            version,
            context,
            rank,
            ranks: ranks.cast_signed(),
            nodes,
        })
    }

    fn wants(&self, kinds: u64) -> bool {
        u64::from(MASK.load(Ordering::Relaxed).cast_unsigned()) & kinds != 0
    }

    fn start(&self, wanted_by: u64, kind: u64, parent: Event, details: Details) -> Event {
        let last = match self.version {
            4 => KERNEL_CHANNEL << 1,
            5 => KERNEL_LAUNCH,
            6 => KERNEL_LAUNCH << 3,
            _ => KERNEL_PHASE,
        };
        if !self.wants(wanted_by) || kind > last {
            return Event::NONE;
        }
        let mut details = details;
        let words = match self.version {
            4 => 10,
            5 | 6 => 11,
            _ => 14,
        };
        // SAFETY: any bits are words.
        for word in unsafe { &mut details.bytes[words..] } {
            *word = RUBBISH;
        }
        let mut descriptor = Descriptor {
            kind: if self.version < 5 {
                kind | RUBBISH << 8
            } else {
                kind
            },
            parent: parent.0,
            rank: self.rank,
            details,
        };
        let mut handle = null_mut();
        // SAFETY: the plugin's contract; the descriptor is as long as its version's or longer.
        unsafe { (self.plugin.start)(self.context, &raw mut handle, &raw mut descriptor) };
        Event(handle)
    }

    fn start_since_5(&self, wanted_by: u64, kind: u64, parent: Event, details: Details) -> Event {
        if self.version < 5 {
            return Event::NONE;
        }
        self.start(wanted_by, kind, parent, details)
    }

    /// Ends an event.
    pub(super) fn stop(&self, event: Event) {
        if !event.0.is_null() {
            // SAFETY: a handle that the plugin gave.
            unsafe { (self.plugin.stop)(event.0) };
        }
    }

    fn state(&self, event: Event, state: c_int) {
        if !event.0.is_null() {
            // SAFETY: a handle that the plugin gave; these states have no arguments.
            unsafe { (self.plugin.state)(event.0, state, null_mut()) };
        }
    }

    /// A state with its argument (ncclProfilerEventStateArgs_t: 8 bytes).
    fn state_of(&self, event: Event, state: c_int, mut argument: u64) {
        if !event.0.is_null() {
            // SAFETY: a handle that the plugin gave, and a valid place.
            unsafe { (self.plugin.state)(event.0, state, (&raw mut argument).cast()) };
        }
    }

    /// The outermost group begins (depth 1: a call outside any group).
    pub(super) fn group_api(&self, depth: c_int, graph_captured: bool) -> Event {
        let any = GROUP_API | COLL_API | P2P_API | GROUP | COLL | P2P | KERNEL_LAUNCH | WITHIN;
        if self.version < 5 {
            return Event::NONE;
        }
        let details = Details {
            group_api: GroupApi {
                graph_captured,
                group_depth: depth,
            },
        };
        let event = self.start(any, GROUP_API, Event::NONE, details);
        self.state(event, GROUP_START_API_STOP);
        event
    }

    /// ncclGroupEnd begins.
    pub(super) fn group_end(&self, group_api: Event) {
        self.state(group_api, GROUP_END_API_START);
    }

    /// The user's call: begins and ends at once.
    pub(super) fn coll_api(&self, group_api: Event, info: &CollectiveInfo, graph_captured: bool) -> Event {
        let coll_api = CollApi {
            function: info.function.as_ptr(),
            count: info.count,
            datatype: info.datatype.as_ptr(),
            root: info.root.cast_signed(),
            stream: info.stream as *mut c_void,
            graph_captured,
            user_tag: 0,
        };
        let event = self.start_since_5(
            COLL_API | COLL | WITHIN,
            COLL_API,
            group_api,
            Details { coll_api },
        );
        self.stop(event);
        event
    }

    /// The user's call of a send or receive: begins and ends at once.
    pub(super) fn p2p_api(
        &self,
        group_api: Event,
        transfer: &Transfer,
        stream: u64,
        graph_captured: bool,
    ) -> Event {
        let p2p_api = P2pApi {
            function: transfer.name().as_ptr(),
            count: transfer.count,
            datatype: transfer.datatype_name().as_ptr(),
            stream: stream as *mut c_void,
            graph_captured,
            user_tag: 0,
        };
        let event = self.start_since_5(P2P_API | P2P | WITHIN, P2P_API, group_api, Details { p2p_api });
        self.stop(event);
        event
    }

    /// One send or receive of the plan begins.
    pub(super) fn p2p(&self, p2p_api: Event, group: Event, transfer: &Transfer, channels: u8) -> Event {
        let p2p = P2p {
            function: transfer.name().as_ptr(),
            buffer: transfer.address as *mut c_void,
            datatype: transfer.datatype_name().as_ptr(),
            count: transfer.count,
            peer: transfer.peer.cast_signed(),
            channels,
            parent_group: group.0,
            user_tag: 0,
        };
        let parent = if self.version < 5 { group } else { p2p_api };
        self.start(P2P | WITHIN, P2P, parent, Details { p2p })
    }

    /// The kernel's launch begins.
    pub(super) fn kernel_launch(&self, group_api: Event, stream: u64) -> Event {
        let details = Details {
            kernel_launch: KernelLaunch {
                stream: stream as *mut c_void,
            },
        };
        self.start_since_5(KERNEL_LAUNCH, KERNEL_LAUNCH, group_api, details)
    }

    /// The plan's group begins.
    pub(super) fn group(&self, group_api: Event) -> Event {
        self.start(
            GROUP | COLL | P2P | WITHIN,
            GROUP,
            group_api,
            Details { bytes: [0; 14] },
        )
    }

    /// One collective of the plan begins. Count and type as NCCL's task has them.
    pub(super) fn coll(
        &self,
        coll_api: Event,
        group: Event,
        info: &CollectiveInfo,
        choice: &Choice,
    ) -> Event {
        let coll = Coll {
            sequence: info.sequence,
            function: info.function.as_ptr(),
            send: info.send as *const c_void,
            receive: info.receive as *mut c_void,
            count: info.count,
            root: info.root.cast_signed(),
            datatype: info.datatype.as_ptr(),
            channels: choice.channels,
            warps: u8::try_from(choice.threads / 32).unwrap_or(u8::MAX),
            algorithm: choice.algorithm.as_ptr(),
            protocol: choice.protocol.as_ptr(),
            parent_group: group.0,
            kernel_variant: null(),
            is_symmetric: false,
            user_tag: 0,
        };
        let parent = if self.version < 5 { group } else { coll_api };
        self.start(COLL | WITHIN, COLL, parent, Details { coll })
    }
}

/// What the proxy and the device tell of one operation of a kernel.
#[derive(Clone, Copy)]
pub(super) struct Within {
    pub(super) operation: Event,
    pub(super) channels: u8,
    pub(super) bytes: u64,
}

/// Events of a kernel that runs.
pub(super) struct Running {
    channels: Vec<(u8, Event)>,
    phases: Vec<(&'static CStr, Event)>,
    proxies: Vec<(bool, u64, Event)>,
}

impl Profiler {
    /// Whether anything within operations is wanted.
    pub(super) fn wants_within(&self) -> bool {
        self.wants(WITHIN)
    }

    /// A kernel begins: on each channel, and the proxy for it. Between nodes the proxy sends and receives; within one it
    /// only watches the channels' clocks, before version 7.
    pub(super) fn kernel_begins(&self, operations: &[Within], start_ns: i64) -> Running {
        let mut running = Running {
            channels: Vec::new(),
            phases: Vec::new(),
            proxies: Vec::new(),
        };
        let timer = start_ns.cast_unsigned();
        for within in operations {
            for channel in 0..within.channels {
                let watches = self.version < 7 && self.wants(KERNEL_CHANNEL);
                if self.nodes > 1 || watches {
                    for sends in [true, false] {
                        let bytes = within.bytes / u64::from(within.channels);
                        let event = self.proxy_op(within.operation, channel, sends, bytes);
                        running.proxies.push((sends, bytes, event));
                    }
                }
                let kernel_channel = KernelChannel { channel, timer };
                let details = Details { kernel_channel };
                let event = self.start(
                    KERNEL_CHANNEL | KERNEL_PHASE,
                    KERNEL_CHANNEL,
                    within.operation,
                    details,
                );
                running.channels.push((channel, event));
                for (name, phase) in PHASES.into_iter().zip(0..) {
                    let kernel_phase = KernelPhase {
                        channel,
                        phase,
                        name: name.as_ptr(),
                        timer,
                    };
                    let phase = self.start(KERNEL_PHASE, KERNEL_PHASE, event, Details { kernel_phase });
                    running.phases.push((name, phase));
                }
            }
        }
        running
    }

    fn proxy_op(&self, operation: Event, channel: u8, sends: bool, bytes: u64) -> Event {
        let next = if sends { 1 } else { self.ranks - 1 };
        let proxy_op = ProxyOp {
            pid: std::process::id().cast_signed(),
            channel,
            peer: (self.rank + next) % self.ranks,
            steps: STEPS,
            chunk_bytes: c_int::try_from(bytes.div_ceil(STEPS as u64)).unwrap_or(c_int::MAX),
            is_send: c_int::from(sends),
        };
        let event = self.start(
            PROXY_OP | PROXY_STEP | KERNEL_CHANNEL,
            PROXY_OP,
            operation,
            Details { proxy_op },
        );
        self.state(event, PROXY_OP_IN_PROGRESS);
        event
    }

    /// It ends.
    pub(super) fn kernel_ends(&self, running: Running, end_ns: i64) {
        for (_, phase) in running.phases {
            self.state_of(phase, KERNEL_PHASE_STOP, end_ns.cast_unsigned());
            self.stop(phase);
        }
        for (_, event) in running.channels {
            self.state_of(event, KERNEL_CHANNEL_STOP, end_ns.cast_unsigned());
            self.stop(event);
        }
        for (sends, bytes, event) in running.proxies {
            if self.nodes > 1 {
                for number in 0..STEPS {
                    let proxy_step = ProxyStep { step: number };
                    let step = self.start(PROXY_STEP, PROXY_STEP, event, Details { proxy_step });
                    let chunk = bytes / STEPS as u64;
                    if sends {
                        self.state(step, SEND_GPU_WAIT);
                        self.state(step, SEND_PEER_WAIT);
                        self.state_of(step, SEND_WAIT, chunk);
                    } else {
                        self.state(step, RECEIVE_WAIT);
                        self.state_of(step, RECEIVE_FLUSH_WAIT, chunk);
                        self.state(step, RECEIVE_GPU_WAIT);
                    }
                    self.stop(step);
                }
            }
            self.stop(event);
        }
    }
}

/// Steps of a channel's part in an operation: few, so that the stand-in is not busy with them.
const STEPS: c_int = 2;
/// Phases of kernels.
const PHASES: [&CStr; 3] = [c"initial_sync", c"compute", c"final_sync"];

impl Drop for Profiler {
    fn drop(&mut self) {
        // SAFETY: the context that init gave, once.
        unsafe { (self.plugin.finalize)(self.context) };
    }
}
