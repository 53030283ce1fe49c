//! What the tests of CUDA's rules share: each test runs itself again in a process that finds the stand-in under the
//! names of NVIDIA's libraries.

#![allow(dead_code)] // Each test program uses a part of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

use crate::test_again;

/// Kernels of the bundled workloads.
pub const PTX: &str = include_str!("../../../workloads/kernels/mlp.ptx");
const IN_CHILD: &str = "STAND_IN_TEST_CHILD";

/// The library, where cargo leaves it: beside this test's executable.
fn library() -> PathBuf {
    let executable = std::env::current_exe().expect("a path");
    let library = executable.parent().expect("a folder").join("libsimgpu.so");
    assert!(library.exists(), "{}", library.display());
    library
}

/// Runs test `name` again, in a process of its own with the stand-in; or its body, when this is that process.
#[track_caller]
pub fn on_the_stand_in(name: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(IN_CHILD).is_some() {
        body();
        return;
    }
    let folder = std::env::temp_dir().join(format!("simgpu-test-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in simgpu_names() {
        std::os::unix::fs::symlink(library(), folder.join(name)).expect("a link");
    }
    let output = test_again(name)
        .env("RUST_BACKTRACE", "0")
        .env(IN_CHILD, "1")
        .env("LD_LIBRARY_PATH", &folder)
        .envs(settings.iter().copied())
        .output()
        .expect("the test starts again");
    remove(&folder);
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn remove(folder: &Path) {
    // A folder that stays in the temporary folder harms nobody.
    drop(std::fs::remove_dir_all(folder));
}

fn simgpu_names() -> [&'static str; 6] {
    [
        "libcuda.so",
        "libcuda.so.1",
        "libcupti.so",
        "libcupti.so.13",
        "libnvidia-ml.so",
        "libnvidia-ml.so.1",
    ]
}

/// The first device's context with a stream.
pub fn open() -> (Arc<CudaContext>, Arc<CudaStream>) {
    open_device(0)
}

/// A device's context with a stream of its own.
pub fn open_device(device: usize) -> (Arc<CudaContext>, Arc<CudaStream>) {
    let context = CudaContext::new(device).expect("a device");
    // SAFETY: the tests order their streams themselves.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream().expect("a stream");
    (context, stream)
}

/// Launches `scale(x, factor, n)`.
pub fn scale(
    context: &Arc<CudaContext>,
    stream: &Arc<CudaStream>,
    values: &mut CudaSlice<f32>,
    factor: &mut f32,
) {
    let module = context.load_module(Ptx::from_src(PTX)).expect("the PTX");
    let kernel = module.load_function("scale").expect("the kernel");
    let count = values.len() as i32;
    let mut launch = stream.launch_builder(&kernel);
    launch.arg(values).arg(&*factor).arg(&count);
    // SAFETY: the arguments are the kernel's.
    unsafe { launch.launch(LaunchConfig::for_num_elems(count as u32)) }.expect("launched");
}

/// The error, if it is one.
pub fn code<T>(result: Result<T, DriverError>) -> Option<CUresult> {
    result.err().map(|error| error.0)
}
