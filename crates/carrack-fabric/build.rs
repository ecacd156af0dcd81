//! Compiles the shim over libfabric. Needs the library's headers and not the library: that is looked for at
//! run time.

fn main() {
    println!("cargo:rerun-if-changed=shim");
    let mut build = cc::Build::new();
    build.file("shim/shim.c").std("c11").define("_GNU_SOURCE", None).warnings(true).extra_warnings(true);
    if !build.is_flag_supported("-Wall").unwrap_or(false) || build.try_compile("carrack_fabric_shim").is_err()
    {
        eprintln!("libfabric's headers are missing, or the C compiler is: install libfabric-dev (Debian), ");
        eprintln!("libfabric-devel (others), or run scripts/setup build");
        std::process::exit(1);
    }
    println!("cargo:rustc-link-lib=dl");
    println!("cargo:rustc-link-lib=pthread");
}
