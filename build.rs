//! How the program is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Lines of code are for backtraces, which unpack them; unpacked they are half of the file.
    println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
}
