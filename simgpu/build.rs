//! How the shared library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // As gputrace itself.
    println!("cargo::rustc-link-arg-cdylib=-Wl,--compress-debug-sections=zlib");
}
