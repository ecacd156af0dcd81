//! Has the linker show the replaced functions to lookups by name, too, as rustix does for some.
fn main() {
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic");
    println!("cargo:rerun-if-changed=build.rs");
}
