//! An ordinary NCCL program on the stand-in: a test that runs itself again, and its ranks as threads.

#![allow(dead_code)]

mod dispositions;

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};

use cudarc::driver::{CudaContext, CudaStream, result};
use cudarc::nccl::sys::{self, ncclDataType_t as Type, ncclRedOp_t as Op, ncclResult_t as Code};

use crate::test_again;

pub const IN_CHILD: &str = "STAND_IN_TEST_CHILD";

/// The library, where cargo leaves it: beside this test's executable.
fn library() -> PathBuf {
    let executable = std::env::current_exe().expect("a path");
    let library = executable.parent().expect("a folder").join("libsimgpu.so");
    assert!(library.exists(), "{}", library.display());
    library
}

/// A folder with the stand-in under the names of NVIDIA's libraries; gone when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("simgpu-test-{}-{number}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["libcuda.so", "libcuda.so.1", "libnccl.so", "libnccl.so.2"] {
            std::os::unix::fs::symlink(library(), folder.join(name)).expect("a link");
        }
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays in the temporary folder harms nobody.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// This test's executable again, to run only test `name` on the stand-in.
#[track_caller]
pub fn again(name: &str, folder: &Folder) -> Command {
    let mut command = test_again(name);
    dispositions::usual_dispositions(&mut command);
    command
        .env(IN_CHILD, "1")
        .env("NCCL_SOCKET_IFNAME", "lo")
        .env("SIMGPU_SCALE", "10")
        .env("LD_LIBRARY_PATH", &folder.0);
    command
}

/// Runs test `name` again, in a process of its own with the stand-in; or its body, when this is that process.
#[track_caller]
pub fn on_the_stand_in(name: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(IN_CHILD).is_some() {
        body();
        return;
    }
    let folder = Folder::new(name);
    let output = again(name, &folder)
        .envs(settings.iter().copied())
        .output()
        .expect("the test starts again");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// The text of the newest error.
pub fn last_error() -> String {
    // SAFETY: NCCL gives a text that lives on.
    let text = unsafe { CStr::from_ptr(sys::ncclGetLastError(std::ptr::null_mut())) };
    text.to_string_lossy().into_owned()
}

/// One rank: a device, a stream and a communicator. Its memory is freed with the process.
pub struct Rank {
    pub rank: usize,
    pub ranks: usize,
    pub comm: sys::ncclComm_t,
    pub context: Arc<CudaContext>,
    pub own_stream: Arc<CudaStream>,
    barrier: Arc<Barrier>,
}

// SAFETY: a communicator may be used by any one thread at a time.
unsafe impl Send for Rank {}

pub fn unique_id() -> sys::ncclUniqueId {
    // SAFETY: plain bytes, and a valid place for the result.
    unsafe {
        let mut id: sys::ncclUniqueId = std::mem::zeroed();
        assert_eq!(
            sys::ncclGetUniqueId(&raw mut id),
            Code::ncclSuccess,
            "{}",
            last_error()
        );
        id
    }
}

impl Rank {
    /// Joins a communicator, on device `device`.
    pub fn join(
        id: sys::ncclUniqueId,
        rank: usize,
        ranks: usize,
        device: usize,
        barrier: Arc<Barrier>,
    ) -> Self {
        let context = CudaContext::new(device).expect("a device");
        let own_stream = context.new_stream().expect("a stream");
        let mut comm = std::ptr::null_mut();
        // SAFETY: a valid place for the result.
        let code = unsafe { sys::ncclCommInitRank(&raw mut comm, ranks as i32, id, rank as i32) };
        assert_eq!(code, Code::ncclSuccess, "{}", last_error());
        Self {
            rank,
            ranks,
            comm,
            context,
            own_stream,
            barrier,
        }
    }

    /// A rank of a communicator that exists.
    pub fn with(
        comm: sys::ncclComm_t,
        rank: usize,
        ranks: usize,
        context: &Arc<CudaContext>,
        own_stream: &Arc<CudaStream>,
        barrier: &Arc<Barrier>,
    ) -> Self {
        Self {
            rank,
            ranks,
            comm,
            context: Arc::clone(context),
            own_stream: Arc::clone(own_stream),
            barrier: Arc::clone(barrier),
        }
    }

    /// Whether the stream has nothing to do.
    pub fn is_idle(&self) -> bool {
        // SAFETY: a stream of ours.
        let code = unsafe { cudarc::driver::sys::cuStreamQuery(self.own_stream.cu_stream()) };
        code == cudarc::driver::sys::CUresult::CUDA_SUCCESS
    }

    pub fn stream(&self) -> sys::cudaStream_t {
        self.own_stream.cu_stream().cast()
    }

    pub fn check(&self, code: Code) {
        assert_eq!(code, Code::ncclSuccess, "{}", last_error());
    }

    pub fn last_error(&self) -> String {
        last_error()
    }

    /// All ranks (threads) of the test wait for each other.
    pub fn barrier(&self) {
        self.barrier.wait();
    }

    pub fn synchronize(&self) {
        self.own_stream.synchronize().expect("the stream ends");
    }

    pub fn zeros(&self, bytes: usize) -> u64 {
        // SAFETY: the memory is zeroed before use, and never freed while in use.
        unsafe {
            let address = result::malloc_sync(bytes).expect("memory");
            result::memset_d8_sync(address, 0, bytes).expect("a memset");
            address
        }
    }

    pub fn write(&self, address: u64, data: &[u8]) {
        if !data.is_empty() {
            // SAFETY: the caller's range.
            unsafe { result::memcpy_htod_sync(address, data) }.expect("a copy");
        }
    }

    pub fn upload_bytes(&self, data: &[u8]) -> u64 {
        let address = self.zeros(data.len().max(1));
        self.write(address, data);
        address
    }

    pub fn upload(&self, values: &[f32]) -> u64 {
        self.upload_bytes(&bytes_of(values))
    }

    /// After all work of the stream.
    pub fn download(&self, address: u64, bytes: usize) -> Vec<u8> {
        self.synchronize();
        let mut data = vec![0; bytes];
        if bytes > 0 {
            // SAFETY: the caller's range.
            unsafe { result::memcpy_dtoh_sync(&mut data, address) }.expect("a copy");
        }
        data
    }

    pub fn group(&self, body: impl FnOnce()) {
        // SAFETY: no arguments.
        self.check(unsafe { sys::ncclGroupStart() });
        body();
        // SAFETY: no arguments.
        self.check(unsafe { sys::ncclGroupEnd() });
    }

    pub fn send(&self, from: u64, count: usize, peer: usize) {
        // SAFETY: `count` f32 there.
        self.check(unsafe {
            sys::ncclSend(
                from as _,
                count,
                Type::ncclFloat32,
                peer as i32,
                self.comm,
                self.stream(),
            )
        });
    }

    pub fn receive(&self, to: u64, count: usize, peer: usize) {
        // SAFETY: `count` f32 there.
        self.check(unsafe {
            sys::ncclRecv(
                to as _,
                count,
                Type::ncclFloat32,
                peer as i32,
                self.comm,
                self.stream(),
            )
        });
    }

    pub fn destroy(&self) {
        // SAFETY: a communicator of ours, not used any more.
        self.check(unsafe { sys::ncclCommDestroy(self.comm) });
    }
}

/// Runs `body` as each of `count` ranks, in threads with a device each.
pub fn ranks(count: usize, body: impl Fn(&Rank) + Sync) {
    ranks_until_abort(count, |rank| {
        body(rank);
        rank.destroy();
    });
}

/// ncclAllReduce of f32 in place, with a reduction that is none of cudarc's enumeration.
///
/// # Safety
/// The buffer must hold `count` f32 of device memory.
pub unsafe fn all_reduce_with(
    buffer: u64,
    count: usize,
    reduction: u32,
    comm: sys::ncclComm_t,
    stream: sys::cudaStream_t,
) -> Code {
    type AllReduce =
        unsafe extern "C" fn(u64, u64, usize, Type, u32, sys::ncclComm_t, sys::cudaStream_t) -> Code;
    unsafe extern "C" {
        fn dlopen(name: *const c_char, flags: i32) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    // SAFETY: the stand-in's function, with the signature of nccl.h; its reduction is an int in C.
    unsafe {
        let library = dlopen(c"libnccl.so".as_ptr(), 2);
        let function = dlsym(library, c"ncclAllReduce".as_ptr());
        let function = std::mem::transmute::<*mut c_void, AllReduce>(function);
        function(buffer, buffer, count, Type::ncclFloat32, reduction, comm, stream)
    }
}

/// As `ranks`, for bodies that end their communicators themselves.
pub fn ranks_until_abort(count: usize, body: impl Fn(&Rank) + Sync) {
    CudaContext::new(0).expect("a device");
    let id = unique_id();
    let barrier = Arc::new(Barrier::new(count));
    std::thread::scope(|scope| {
        for rank in 0..count {
            let (barrier, body) = (Arc::clone(&barrier), &body);
            scope.spawn(move || {
                let run = std::panic::AssertUnwindSafe(|| {
                    let rank = Rank::join(id, rank, count, rank, barrier);
                    body(&rank);
                });
                if std::panic::catch_unwind(run).is_err() {
                    // The others may wait for this rank for ever.
                    std::process::exit(101);
                }
            });
        }
    });
}

pub fn f32s(count: usize, value: impl Fn(usize) -> f32) -> Vec<f32> {
    (0..count).map(value).collect()
}

pub fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// All-reduces one f32 in place on a communicator.
pub fn all_reduce(rank: &Rank, comm: sys::ncclComm_t, value: f32) -> f32 {
    let buffer = rank.upload(&[value]);
    // SAFETY: one f32 there.
    rank.check(unsafe {
        let to = buffer as *mut c_void;
        sys::ncclAllReduce(to, to, 1, Type::ncclFloat32, Op::ncclSum, comm, rank.stream())
    });
    f32::from_le_bytes(rank.download(buffer, 4).try_into().expect("4 bytes"))
}

/// Splits a communicator.
pub fn split(rank: &Rank, comm: sys::ncclComm_t, color: i32, key: i32) -> sys::ncclComm_t {
    let mut made = std::ptr::null_mut();
    // SAFETY: a communicator, and a place for the new one.
    rank.check(unsafe { sys::ncclCommSplit(comm, color, key, &raw mut made, std::ptr::null_mut()) });
    made
}
