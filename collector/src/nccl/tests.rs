//! The plugin as NCCL calls it: each version's structs, in the order in which NCCL sends them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, Ordering};

use gputrace_trace::tables::{Collective, Tables};
use gputrace_trace::{Interner, Table};

use super::abi::{self, Descriptor, EVENT_OFFSET, Plugin};
use super::{ncclProfiler_v4, ncclProfiler_v5, ncclProfiler_v6, ncclProfiler_v7, set_recording};
use crate::host_events::testing::{self, Turn};

/// What is not an event's: a plugin that reads it finds no address and no length.
const RUBBISH: u8 = 0x6b;
/// Bytes of a descriptor by version (`sizeof`).
const DESCRIPTOR_BYTES: [(u32, usize); 4] = [(4, 104), (5, 112), (6, 112), (7, 136)];

type Start = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut Descriptor) -> c_int;

/// NCCL with one communicator.
#[derive(Clone, Copy)]
struct Nccl {
    version: u32,
    context: *mut c_void,
    start: Start,
    stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    state: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: NCCL calls from any thread.
unsafe impl Send for Nccl {}

#[derive(Clone, Copy)]
struct Handle(*mut c_void);

// SAFETY: as above.
unsafe impl Send for Handle {}

const NONE: Handle = Handle(null_mut());

/// Each version is another NCCL.
static MASKS: [AtomicI32; 8] = [const { AtomicI32::new(0) }; 8];

impl Nccl {
    /// Rank 1 of 4 in a communicator called "test".
    fn new(version: u32, communicator: u64) -> Self {
        let mut context = null_mut();
        let (name, mask) = (c"test".as_ptr(), MASKS[version as usize].as_ptr());
        // SAFETY: NCCL's side of the contract: valid places.
        let result = unsafe {
            match version {
                4 => (ncclProfiler_v4.init)(&raw mut context, mask, name, communicator, 2, 4, 1, None),
                5 => (ncclProfiler_v5.init)(&raw mut context, communicator, mask, name, 2, 4, 1, None),
                6 => (ncclProfiler_v6.init)(&raw mut context, communicator, mask, name, 2, 4, 1, None),
                _ => (ncclProfiler_v7.init)(&raw mut context, communicator, mask, name, 2, 4, 1, None),
            }
        };
        assert!(
            result == 0 && !context.is_null(),
            "without a context NCCL never finalizes"
        );
        let Plugin {
            start,
            stop,
            state,
            finalize,
            ..
        } = ncclProfiler_v7;
        Self {
            version,
            context,
            start,
            stop,
            state,
            finalize,
        }
    }

    /// Starts an event whose bytes are `fields`: value and offset each.
    fn start(self, kind: u64, parent: Handle, fields: &[(usize, &[u8])]) -> Handle {
        let length = DESCRIPTOR_BYTES
            .iter()
            .find(|(version, _)| *version == self.version)
            .expect("a version")
            .1;
        // Eight-byte words, for the alignment; the descriptor ends with its last byte.
        let mut descriptor = vec![u64::from_le_bytes([RUBBISH; 8]); length / 8];
        let base = descriptor.as_mut_ptr().cast::<u8>();
        let put = |offset: usize, bytes: &[u8]| {
            assert!(offset + bytes.len() <= length, "a field of this version");
            // SAFETY: within the descriptor, as was just checked.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(offset), bytes.len()) };
        };
        let kind = kind.to_le_bytes();
        put(0, if self.version < 5 { &kind[..1] } else { &kind });
        put(offset_of!(Descriptor, parent), &(parent.0 as u64).to_le_bytes());
        put(offset_of!(Descriptor, rank), &1i32.to_le_bytes());
        for (offset, bytes) in fields {
            put(EVENT_OFFSET + offset, bytes);
        }
        let mut handle = null_mut();
        // SAFETY: NCCL's side of the contract: a descriptor of the version's length.
        let result = unsafe { (self.start)(self.context, &raw mut handle, base.cast()) };
        assert_eq!(result, 0);
        Handle(handle)
    }

    fn stop(self, handle: Handle) {
        // SAFETY: a plugin must take any handle, late and twice.
        assert_eq!(unsafe { (self.stop)(handle.0) }, 0);
    }

    fn state(self, handle: Handle, state: c_int, mut value: u64) {
        // SAFETY: as above, with a valid argument.
        let result = unsafe { (self.state)(handle.0, state, (&raw mut value).cast()) };
        assert_eq!(result, 0);
    }

    fn group_api(self) -> Handle {
        self.start(abi::GROUP_API, NONE, &[(0, &[0]), (4, &1i32.to_le_bytes())])
    }

    fn coll_api(self, group: Handle, function: &'static CStr, count: usize, tag: u64) -> Handle {
        let (function, datatype) = (address(function), address(c"ncclFloat32"));
        let tag = tag.to_le_bytes();
        let mut fields = vec![
            (offset_of!(abi::CollApi, function), &function[..]),
            (offset_of!(abi::CollApi, datatype), &datatype),
        ];
        let (count, root, stream) = (count.to_le_bytes(), 2i32.to_le_bytes(), 0xabcdu64.to_le_bytes());
        fields.push((offset_of!(abi::CollApi, count), &count));
        fields.push((offset_of!(abi::CollApi, root), &root));
        fields.push((offset_of!(abi::CollApi, stream), &stream));
        fields.push((offset_of!(abi::CollApi, graph_captured), &[0]));
        if self.version >= 7 {
            fields.push((offset_of!(abi::CollApi, user_tag), &tag));
        }
        let handle = self.start(abi::COLL_API, group, &fields);
        self.stop(handle);
        handle
    }

    fn launch(self, group: Handle) {
        let launch = self.start(abi::KERNEL_LAUNCH, group, &[(0, &0xabcdu64.to_le_bytes())]);
        self.stop(launch);
    }

    fn coll(self, parent: Handle, function: &'static CStr, sequence: u64, bytes: usize) -> Handle {
        let texts = [function, c"ncclInt8", c"RING", c"LL", c"variant"].map(address);
        let numbers = [sequence, bytes as u64, 0x77].map(u64::to_le_bytes);
        let root = 2i32.to_le_bytes();
        let mut fields = vec![
            (offset_of!(abi::Coll, sequence), &numbers[0][..]),
            (offset_of!(abi::Coll, function), &texts[0]),
            (offset_of!(abi::Coll, count), &numbers[1]),
            (offset_of!(abi::Coll, root), &root),
            (offset_of!(abi::Coll, datatype), &texts[1]),
            (offset_of!(abi::Coll, channels), &[8]),
            (offset_of!(abi::Coll, warps), &[17]),
            (offset_of!(abi::Coll, algorithm), &texts[2]),
            (offset_of!(abi::Coll, protocol), &texts[3]),
        ];
        if self.version >= 7 {
            fields.push((offset_of!(abi::Coll, kernel_variant), &texts[4]));
            fields.push((offset_of!(abi::Coll, is_symmetric), &[1]));
            fields.push((offset_of!(abi::Coll, user_tag), &numbers[2]));
        }
        self.start(abi::COLL, parent, &fields)
    }

    /// The plan's group with one collective.
    fn plan(
        self,
        group: Handle,
        parent: Handle,
        function: &'static CStr,
        sequence: u64,
        bytes: usize,
    ) -> Handle {
        let plan_group = self.start(abi::GROUP, group, &[]);
        let coll = self.coll(parent, function, sequence, bytes);
        self.stop(coll);
        self.stop(plan_group);
        coll
    }
}

fn address(text: &'static CStr) -> [u8; 8] {
    (text.as_ptr() as u64).to_le_bytes()
}

/// The operations, in the order of their times.
fn operations(turn: &Turn) -> (Vec<Collective>, Tables, Interner) {
    let (tables, names) = turn.written();
    let rows = &tables.collectives;
    let mut rows: Vec<Collective> = (0..rows.len()).map(|row| rows.row(row)).collect();
    rows.sort_by_key(|row| row.start_ns);
    (rows, tables, names)
}

#[test]
fn an_operation_has_its_calls_count_and_a_call_without_one_is_a_row() {
    let turn = testing::turn();
    for version in [5, 6, 7] {
        // A thread's ring is read by one writer: each version has a thread of its own.
        std::thread::scope(|scope| {
            scope.spawn(|| calls_and_operations(&turn, version));
        });
    }
}

fn calls_and_operations(turn: &Turn, version: u32) {
    let nccl = Nccl::new(version, 0x1000 + u64::from(version));
    let group = nccl.group_api();
    let gather = nccl.coll_api(group, c"AllGather", 100, 9);
    nccl.coll_api(group, c"Broadcast", 50, 0);
    nccl.launch(group);
    nccl.plan(group, gather, c"AllGather", 41, 400);
    nccl.stop(group);
    // The next one has no launch that was told: its plan is the group.
    let group = nccl.group_api();
    let gather = nccl.coll_api(group, c"AllGather", 100, 9);
    nccl.plan(group, gather, c"AllGather", 42, 400);
    nccl.stop(group);
    let (rows, tables, names) = operations(turn);
    assert_eq!(rows.len(), 3, "version {version}");
    assert_eq!(tables.communicators.len(), 1);
    assert_eq!(
        (tables.communicators.rank[0], tables.communicators.ranks[0]),
        (1, 4)
    );
    let of = |function: &str| {
        rows.iter()
            .filter(|row| names.get(row.function) == function)
            .collect::<Vec<_>>()
    };
    let (gathers, broadcasts) = (of("AllGather"), of("Broadcast"));
    for (row, sequence) in gathers.iter().zip([41, 42]) {
        assert_eq!((row.count, row.bytes, row.sequence), (100, 400, Some(sequence)));
        assert_eq!(names.get(row.datatype), "ncclFloat32");
        assert_eq!((row.source, row.stream, row.root), (0, Some(0xabcd), None));
        assert_eq!((row.channels, row.warps), (8, 17));
        assert_eq!(row.algorithm.map(|name| names.get(name)), Some("RING"));
        let since_7 = version >= 7;
        assert_eq!(row.user_tag, since_7.then_some(0x77));
        assert_eq!(
            row.variant.map(|name| names.get(name)),
            since_7.then_some("variant")
        );
        assert_eq!(row.symmetric, u8::from(since_7));
    }
    let broadcast = broadcasts[0];
    assert_eq!(
        (broadcast.source, broadcast.sequence, broadcast.root),
        (1, Some(0), Some(2))
    );
    assert_eq!((broadcast.count, broadcast.bytes), (50, 200));
    let plans = [gathers[0].plan, broadcast.plan, gathers[1].plan];
    assert!(
        plans.iter().all(Option::is_some) && plans[0] != plans[1] && plans[1] != plans[2],
        "{plans:?}"
    );
}

#[test]
fn a_communicator_that_does_not_block_tells_of_its_operations_on_another_thread() {
    let turn = testing::turn();
    let nccl = Nccl::new(6, 0x2000);
    let group = nccl.group_api();
    let call = nccl.coll_api(group, c"AllReduce", 100, 0);
    nccl.stop(group);
    std::thread::spawn(move || {
        // The whole structs, not their members alone.
        let (nccl, group, call) = { (nccl, group, call) };
        nccl.launch(group);
        nccl.plan(group, call, c"AllReduce", 7, 400);
    })
    .join()
    .expect("ends");
    let (rows, ..) = operations(&turn);
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.source, row.sequence, row.count, row.plan.is_some()))
        .collect();
    assert_eq!(
        found,
        [(0, Some(7), 100, true)],
        "one row, and that from NCCL's own event"
    );
}

#[test]
fn version_4_has_other_arguments_and_shorter_structs() {
    let turn = testing::turn();
    let nccl = Nccl::new(4, 0x3000);
    let asked = MASKS[4].load(Ordering::Relaxed);
    assert_eq!(asked & !0xff, 0, "version 4 has no such events: {asked:#x}");
    let group = nccl.start(abi::GROUP, NONE, &[]);
    let coll = nccl.coll(group, c"AllReduce", 3, 400);
    nccl.stop(coll);
    nccl.stop(group);
    let (rows, tables, names) = operations(&turn);
    assert_eq!(tables.communicators.communicator, [0x3000]);
    assert_eq!(tables.communicators.nodes, [2]);
    assert_eq!(names.get(tables.communicators.name[0].expect("a name")), "test");
    let row = &rows[0];
    assert_eq!(
        (rows.len(), names.get(row.function), row.sequence),
        (1, "AllReduce", Some(3))
    );
    assert_eq!((row.count, row.bytes, row.root), (400, 400, None));
    assert_eq!((row.user_tag, row.variant, row.symmetric), (None, None, 0));
}

#[test]
fn copies_proxies_and_channels_are_rows_of_their_operation() {
    let turn = testing::turn();
    let nccl = Nccl::new(7, 0x4000);
    let group = nccl.group_api();
    let texts = [c"AllGather", c"ncclFloat32", c"MC"].map(address);
    let numbers = [5, 1000, 0xbeef, 0].map(u64::to_le_bytes);
    let copies = nccl.start(
        abi::CE_COLL,
        group,
        &[
            (offset_of!(abi::CeColl, sequence), &numbers[0]),
            (offset_of!(abi::CeColl, function), &texts[0]),
            (offset_of!(abi::CeColl, count), &numbers[1]),
            (offset_of!(abi::CeColl, root), &0i32.to_le_bytes()),
            (offset_of!(abi::CeColl, datatype), &texts[1]),
            (offset_of!(abi::CeColl, sync_strategy), &texts[2]),
            (offset_of!(abi::CeColl, stream), &numbers[2]),
            (offset_of!(abi::CeColl, user_tag), &numbers[3]),
        ],
    );
    nccl.stop(copies);
    let call = nccl.coll_api(group, c"AllReduce", 100, 0);
    nccl.launch(group);
    let coll = nccl.plan(group, call, c"AllReduce", 6, 400);
    nccl.stop(group);
    // On the proxy's thread, after the operation was "stopped".
    let proxy = |pid: u32| {
        let pid = pid.to_le_bytes();
        nccl.start(
            abi::PROXY_OP,
            coll,
            &[
                (offset_of!(abi::ProxyOp, pid), &pid),
                (offset_of!(abi::ProxyOp, channel), &[3]),
                (offset_of!(abi::ProxyOp, peer), &2i32.to_le_bytes()),
                (offset_of!(abi::ProxyOp, steps), &4i32.to_le_bytes()),
                (offset_of!(abi::ProxyOp, chunk_bytes), &512i32.to_le_bytes()),
                (offset_of!(abi::ProxyOp, is_send), &1i32.to_le_bytes()),
            ],
        )
    };
    let part = proxy(std::process::id());
    let step = nccl.start(abi::PROXY_STEP, part, &[(0, &2i32.to_le_bytes())]);
    nccl.state(step, 8, 0);
    nccl.state(step, 20, 0);
    nccl.state(step, abi::SEND_WAIT, 512);
    nccl.stop(step);
    nccl.stop(part);
    let elsewhere = proxy(1);
    nccl.stop(elsewhere);
    let timer = 1000u64.to_le_bytes();
    let channel = nccl.start(abi::KERNEL_CHANNEL, coll, &[(0, &[3]), (8, &timer)]);
    let phase = nccl.start(
        abi::KERNEL_PHASE,
        channel,
        &[(0, &[3]), (1, &[0]), (8, &address(c"compute")), (16, &timer)],
    );
    nccl.state(phase, abi::KERNEL_PHASE_STOP, 1500);
    nccl.stop(phase);
    nccl.state(channel, abi::KERNEL_CHANNEL_STOP, 2000);
    nccl.stop(channel);

    let (rows, tables, names) = operations(&turn);
    let found: Vec<_> = rows
        .iter()
        .map(|row| (names.get(row.function), row.source, row.stream, row.bytes))
        .collect();
    assert_eq!(
        found,
        [
            ("AllGather", 2, Some(0xbeef), 4000),
            ("AllReduce", 0, Some(0xabcd), 400)
        ]
    );
    assert_eq!(rows[0].variant.map(|name| names.get(name)), Some("MC"));
    let operation = rows[1].operation.expect("a number, since channels are recorded");
    let channels = &tables.nccl_channels;
    assert_eq!(channels.operation, [Some(operation), Some(operation)]);
    assert_eq!(
        channels
            .phase
            .iter()
            .map(|name| name.map(|name| names.get(name)))
            .collect::<Vec<_>>(),
        [Some("compute"), None]
    );
    assert_eq!(channels.device_end_ns, [Some(1500), Some(2000)]);
    let proxies = &tables.nccl_proxy;
    assert_eq!(proxies.len(), 3);
    let step = proxies.row(0);
    let part = proxies.row(1);
    assert_eq!(
        (step.parent, step.step, step.bytes),
        (Some(part.number), Some(2), Some(512))
    );
    assert!(step.gpu_wait_ns.is_some() && step.peer_wait_ns.is_some() && step.network_ns.is_some());
    assert_eq!((step.flush_ns, part.step), (None, None));
    assert_eq!(
        (part.parent, part.channel, part.sends),
        (Some(operation), Some(3), Some(1))
    );
    assert_eq!((part.peer, part.steps, part.bytes), (Some(2), Some(4), Some(512)));
    assert_eq!(proxies.row(2).parent, None, "another process's operation");
}

#[test]
fn late_repeated_and_made_up_handles_mean_nothing() {
    let turn = testing::turn();
    let nccl = Nccl::new(6, 0x5000);
    let group = nccl.group_api();
    let launch = nccl.start(abi::KERNEL_LAUNCH, group, &[(0, &[0; 8])]);
    for handle in [
        launch,
        launch,
        NONE,
        group,
        group,
        Handle(usize::MAX as *mut c_void),
        Handle(6 as *mut c_void),
    ] {
        nccl.stop(handle);
        nccl.state(handle, abi::KERNEL_CHANNEL_STOP, 1);
        // SAFETY: the argument may be missing.
        unsafe { (nccl.state)(handle.0, abi::SEND_WAIT, null_mut()) };
    }
    // SAFETY: contexts stay for ever, whatever NCCL does with them; and wrong arguments are no reason to crash.
    unsafe {
        (nccl.finalize)(nccl.context);
        (nccl.finalize)(nccl.context);
        (nccl.finalize)(null_mut());
        let mut handle = null_mut();
        (nccl.start)(null_mut(), &raw mut handle, null_mut());
        (nccl.start)(nccl.context, &raw mut handle, null_mut());
    }
    // After the end, and of a kind that nobody knows.
    nccl.stop(nccl.start(1 << 40, NONE, &[]));
    let text = nccl.coll(NONE, c"AllReduce", 1, 4);
    nccl.stop(text);
    let null: *const c_char = null();
    let nothing = (null as u64).to_le_bytes();
    nccl.start(
        abi::P2P,
        NONE,
        &[(0, &nothing), (16, &nothing), (32, &3i32.to_le_bytes())],
    );
    let (rows, ..) = operations(&turn);
    assert_eq!(rows.len(), 2);
}

#[test]
fn masks_are_written_while_there_are_communicators_and_never_after() {
    let turn = testing::turn();
    // Contexts of other tests are still open: this one's own NCCL has a mask of its own.
    static OWN: AtomicI32 = AtomicI32::new(-1);
    let mut contexts = [null_mut(), null_mut()];
    for context in &mut contexts {
        // SAFETY: NCCL's side of the contract.
        unsafe { (ncclProfiler_v7.init)(context, 0x6000, OWN.as_ptr(), null(), 1, 2, 0, None) };
    }
    let own = || OWN.load(Ordering::Relaxed);
    let wanted = own();
    let expected = abi::COLL | abi::P2P | abi::KERNEL_LAUNCH | abi::CE_COLL;
    assert_eq!(wanted as u64 & expected, expected, "{wanted:#x}");
    set_recording(false);
    assert_eq!(own(), 0);
    set_recording(true);
    assert_eq!(own(), wanted);
    // SAFETY: as above.
    unsafe { (ncclProfiler_v7.finalize)(contexts[0]) };
    set_recording(false);
    assert_eq!(own(), 0, "one is left");
    // SAFETY: as above.
    unsafe { (ncclProfiler_v7.finalize)(contexts[1]) };
    set_recording(true);
    assert_eq!(own(), 0, "NCCL may be unloaded by now");
    drop(operations(&turn));
}
