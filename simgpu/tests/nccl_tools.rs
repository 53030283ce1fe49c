//! What profilers and NVTX's tools are told of NCCL on the stand-in: tried with a small tool in C.

use crate::support;

use std::ffi::c_void;
use std::process::Command;

use cudarc::nccl::sys::{self, ncclDataType_t as Type, ncclRedOp_t as Op};
use support::{Folder, Rank, on_the_stand_in, ranks};

/// Builds the tool of tool.c, and gives its path and that of its log.
fn tool(name: &str) -> (Folder, String, String) {
    let folder = Folder::new(&format!("tool-{name}"));
    let library = folder.0.join("libtool.so").to_string_lossy().into_owned();
    let log = folder.0.join("log").to_string_lossy().into_owned();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o", &library])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tool.c"))
        .arg("-lpthread")
        .status()
        .expect("cc, which Rust needs to link too");
    assert!(built.success());
    (folder, library, log)
}

#[test]
fn a_profiler_hears_of_groups_in_nccls_order() {
    let name = "a_profiler_hears_of_groups_in_nccls_order";
    let body = || {
        ranks(2, |rank: &Rank| {
            let other = 1 - rank.rank;
            let (a, b) = (rank.zeros(4000), rank.zeros(4000));
            let to = a as *mut c_void;
            let reduce = |count| {
                // SAFETY: 1000 f32 there.
                rank.check(unsafe {
                    sys::ncclAllReduce(
                        to,
                        to,
                        count,
                        Type::ncclFloat32,
                        Op::ncclSum,
                        rank.comm,
                        rank.stream(),
                    )
                });
            };
            reduce(1000);
            rank.group(|| {
                rank.send(a, 10, other);
                rank.receive(b, 10, other);
                reduce(500);
            });
            // SAFETY: enough of both.
            rank.check(unsafe {
                sys::ncclAllGather(a as _, b as _, 8, Type::ncclFloat32, rank.comm, rank.stream())
            });
            rank.synchronize();
        });
    };
    if std::env::var_os(support::IN_CHILD).is_some() {
        body();
        return;
    }
    let (_folder, library, log) = tool(name);
    on_the_stand_in(
        name,
        &[("NCCL_PROFILER_PLUGIN", &library), ("TOOL_LOG", &log)],
        body,
    );
    let log = std::fs::read_to_string(log).expect("a log");
    let expected = "\
init - nodes 1 ranks 2
start GroupApi depth 1
state 23
start CollApi AllReduce 1000 ncclFloat32 root 0 in GroupApi
stop CollApi
state 24
start KernelLaunch in GroupApi
stop KernelLaunch
start Group in GroupApi
start Coll AllReduce #0 1000 ncclFloat32 RING/LL in CollApi
stop Coll
stop Group
stop GroupApi
start GroupApi depth 2
state 23
start P2pApi Send 10 ncclFloat32 in GroupApi
stop P2pApi
start P2pApi Recv 10 ncclFloat32 in GroupApi
stop P2pApi
start CollApi AllReduce 500 ncclFloat32 root 0 in GroupApi
stop CollApi
state 24
start KernelLaunch in GroupApi
stop KernelLaunch
start Group in GroupApi
start Coll AllReduce #1 500 ncclFloat32 RING/LL in CollApi
start P2p Recv 10 ncclFloat32 peer 1 in P2pApi
start P2p Send 10 ncclFloat32 peer 1 in P2pApi
stop Coll
stop P2p
stop P2p
stop Group
stop GroupApi
start GroupApi depth 1
state 23
start CollApi AllGather 8 ncclFloat32 root 0 in GroupApi
stop CollApi
state 24
start KernelLaunch in GroupApi
stop KernelLaunch
start Group in GroupApi
start Coll AllGather #0 32 ncclInt8 RING/LL in CollApi
stop Coll
stop Group
stop GroupApi
finalize
";
    assert_eq!(log, expected);
}

#[test]
fn nvtx_ranges_say_what_was_called() {
    let name = "nvtx_ranges_say_what_was_called";
    let body = || {
        ranks(1, |rank: &Rank| {
            let (a, b) = (rank.zeros(4000), rank.zeros(4000));
            let (from, to) = (a as *const c_void, b as *mut c_void);
            let (comm, stream, kind) = (rank.comm, rank.stream(), Type::ncclFloat32);
            // SAFETY: 1000 f32 in each.
            unsafe {
                rank.check(sys::ncclAllReduce(
                    from,
                    to,
                    1000,
                    kind,
                    Op::ncclMax,
                    comm,
                    stream,
                ));
                rank.check(sys::ncclReduce(from, to, 10, kind, Op::ncclProd, 0, comm, stream));
                rank.check(sys::ncclAlltoAll(from, to, 5, kind, comm, stream));
            }
            rank.synchronize();
        });
    };
    if std::env::var_os(support::IN_CHILD).is_some() {
        body();
        return;
    }
    let (_folder, library, path) = tool(name);
    let settings = [("NVTX_INJECTION64_PATH", library.as_str()), ("TOOL_LOG", &path)];
    on_the_stand_in(name, &settings, body);
    let log = std::fs::read_to_string(&path).expect("a log");
    assert!(log.contains("domain NCCL\n"), "{log}");
    assert!(
        log.contains("schema 5 ncclAllReduce fields 3 bytes 24\n"),
        "{log}"
    );
    assert!(
        log.contains("schema 13 ncclCommSplit fields 7 bytes 40\n"),
        "{log}"
    );
    let ranges = log.split_once("push").expect("ranges").1;
    // ncclMax is 2; ncclProd 1; the root is 0.
    let expected = " ncclCommInitRank
pop with payload schema 0 size 24 1 0
push ncclAllReduce with payload
payload schema 5 size 24 fa0 2
pop
push ncclReduce with payload
payload schema 8 size 24 28 100000000
pop
push ncclAlltoAll with payload
payload schema 16 size 16 14
pop
push ncclCommDestroy with payload
payload schema 2 size 24 1 0
pop
";
    assert_eq!(ranges, expected);
    std::fs::remove_file(&path).expect("a log");
    let off = [settings[0], settings[1], ("NCCL_NVTX_DISABLE", "1")];
    on_the_stand_in(name, &off, body);
    assert!(std::fs::read_to_string(&path).is_err());
}
