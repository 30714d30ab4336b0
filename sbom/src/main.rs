//! `tombolo-sbom`: lists the crates that a program of a release is made of, as CycloneDX.

mod bom;
mod cargo;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

/// Prints the software bill of materials of one program, as CycloneDX 1.6 in JSON
///
/// The list comes from cargo and Cargo.lock, so run it in the workspace. The same sources give the same list.
#[derive(Debug, Parser)]
#[command(
    name = "tombolo-sbom",
    after_help = "Examples:\n  cargo run --package sbom -- --package tunnel-agent --target x86_64-unknown-linux-musl"
)]
struct Arguments {
    /// The package of the program: tunnel-server, tunnel-agent, node-lb, fleet or cli
    #[arg(long, value_name = "NAME")]
    package: String,
    /// The machine that the program is built for
    #[arg(long, value_name = "TRIPLE")]
    target: String,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error cannot be reported; the exit code still tells of the failure.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments { package, target } = arguments;
    let crates = cargo::crates(package, target)?;
    let mut text = serde_json::to_string_pretty(&bom::of(package, &crates)?)?;
    text.push('\n');
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
