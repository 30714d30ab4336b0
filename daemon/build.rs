//! Passes the compiler's version to the crate, for the metric `build_info`.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let told = Command::new(rustc).arg("--version").output().ok();
    let told = told.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    // `rustc 1.95.0 (hash date)`
    let version = told.split(' ').nth(1).unwrap_or("unknown");
    println!("cargo::rustc-env=RUSTC_VERSION={version}");
}
