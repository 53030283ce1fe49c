//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // NCCL closes its plugin with the last communicator, and programs may close what they opened: our thread, our exit
    // handler and CUPTI's callbacks stay, so the library must.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // As gputrace itself.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--compress-debug-sections=zlib");
}
