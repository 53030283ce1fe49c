//! Loads the profiler plugin as NCCL does and plays its events in NCCL's order.
//!
//! NCCL_PROFILER_PLUGIN names it: a path, a library, or X for libnccl-profiler-X.so; "none" is none. The newest of
//! versions 7, 6 and 5 that it offers is used; SIMGPU_NCCL_PROFILER caps the version, to try older ones.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use super::model::Choice;
use super::operation::Transfer;
use super::profiler_abi::{
    COLL, COLL_API, Coll, CollApi, Descriptor, Details, GROUP, GROUP_API, GROUP_END_API_START,
    GROUP_START_API_STOP, GroupApi, KERNEL_LAUNCH, KernelLaunch, P2P, P2P_API, P2p, P2pApi, Plugin,
};

fn plugin() -> Option<&'static Plugin> {
    static PLUGIN: OnceLock<Option<&'static Plugin>> = OnceLock::new();
    *PLUGIN.get_or_init(load)
}

fn open(name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: the user names a library to be loaded into this process, as with NCCL itself.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(handle)
}

fn load() -> Option<&'static Plugin> {
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
    let newest = std::env::var("SIMGPU_NCCL_PROFILER")
        .ok()
        .and_then(|version| version.parse().ok())
        .unwrap_or(7);
    [
        (7, c"ncclProfiler_v7"),
        (6, c"ncclProfiler_v6"),
        (5, c"ncclProfiler_v5"),
    ]
    .into_iter()
    .filter(|(version, _)| *version <= newest)
    .find_map(|(_, symbol)| {
        // SAFETY: `library` is open; NCCL's contract is that a symbol of this name is the plugin's table of
        // that version, which lives as long as the library (never closed here).
        unsafe { libc::dlsym(library, symbol.as_ptr()).cast::<Plugin>().as_ref() }
    })
}

/// The plugin's state for one communicator.
pub(super) struct Profiler {
    plugin: &'static Plugin,
    context: *mut c_void,
    /// The plugin keeps the address and may change the mask at any time, so it never moves.
    mask: Box<c_int>,
    rank: c_int,
}

// SAFETY: NCCL calls a plugin's functions from any thread; plugins must cope, and so the context may cross threads.
unsafe impl Send for Profiler {}
// SAFETY: as above.
unsafe impl Sync for Profiler {}

/// An event that was started; ends it.
#[derive(Clone, Copy)]
pub(super) struct Event(*mut c_void);

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
        let plugin = plugin()?;
        let (mut context, mut mask) = (null_mut(), Box::new(0));
        let rank = rank.cast_signed();
        let name = name.map_or(null(), CStr::as_ptr);
        // SAFETY: the plugin's init by its contract; all places are valid, and the mask's stays so.
        let failed = unsafe {
            (plugin.init)(
                &raw mut context,
                communicator,
                &raw mut *mask,
                name,
                nodes.cast_signed(),
                ranks.cast_signed(),
                rank,
                None,
            )
        } != 0;
        (!failed && !context.is_null()).then_some(Self {
            plugin,
            context,
            mask,
            rank,
        })
    }

    fn wants(&self, kinds: u64) -> bool {
        // SAFETY: reads the mask that the plugin may write at the same time, as NCCL does.
        let mask = unsafe { (&raw const *self.mask).read_volatile() };
        u64::from(mask.cast_unsigned()) & kinds != 0
    }

    fn start(&self, wanted_by: u64, kind: u64, parent: Event, details: Details) -> Event {
        if !self.wants(wanted_by) {
            return Event::NONE;
        }
        let mut descriptor = Descriptor {
            kind,
            parent: parent.0,
            rank: self.rank,
            details,
        };
        let mut handle = null_mut();
        // SAFETY: the plugin's contract; the descriptor is as long as its version's or longer.
        unsafe { (self.plugin.start)(self.context, &raw mut handle, &raw mut descriptor) };
        Event(handle)
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

    /// The outermost group begins (depth 1: a call outside any group).
    pub(super) fn group_api(&self, depth: c_int) -> Event {
        let any = GROUP_API | COLL_API | P2P_API | GROUP | COLL | P2P | KERNEL_LAUNCH;
        let details = Details {
            group_api: GroupApi {
                graph_captured: false,
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
    pub(super) fn coll_api(&self, group_api: Event, info: &CollectiveInfo) -> Event {
        let coll_api = CollApi {
            function: info.function.as_ptr(),
            count: info.count,
            datatype: info.datatype.as_ptr(),
            root: info.root.cast_signed(),
            stream: info.stream as *mut c_void,
            graph_captured: false,
            user_tag: 0,
        };
        let event = self.start(COLL_API | COLL, COLL_API, group_api, Details { coll_api });
        self.stop(event);
        event
    }

    /// The user's call of a send or receive: begins and ends at once.
    pub(super) fn p2p_api(&self, group_api: Event, transfer: &Transfer, stream: u64) -> Event {
        let p2p_api = P2pApi {
            function: transfer.name().as_ptr(),
            count: transfer.count,
            datatype: transfer.datatype_name().as_ptr(),
            stream: stream as *mut c_void,
            graph_captured: false,
            user_tag: 0,
        };
        let event = self.start(P2P_API | P2P, P2P_API, group_api, Details { p2p_api });
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
        self.start(P2P, P2P, p2p_api, Details { p2p })
    }

    /// The kernel's launch begins.
    pub(super) fn kernel_launch(&self, group_api: Event, stream: u64) -> Event {
        let details = Details {
            kernel_launch: KernelLaunch {
                stream: stream as *mut c_void,
            },
        };
        self.start(KERNEL_LAUNCH, KERNEL_LAUNCH, group_api, details)
    }

    /// The plan's group begins.
    pub(super) fn group(&self, group_api: Event) -> Event {
        self.start(GROUP | COLL | P2P, GROUP, group_api, Details { bytes: [0; 14] })
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
        self.start(COLL, COLL, coll_api, Details { coll })
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        // SAFETY: the context that init gave, once.
        unsafe { (self.plugin.finalize)(self.context) };
    }
}
