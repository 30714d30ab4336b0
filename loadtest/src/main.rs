//! Callers through the tunnel beside callers who go direct, in interleaved rounds on one machine.

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Scenario};

mod args;
mod caller;
mod crowd;
mod get;
mod layout;
mod machine;
mod order;
mod process;
mod progress;
mod report;
mod rig;
mod spread;
mod table;
mod target;
mod trial;
mod way;

fn main() -> ExitCode {
    let Arguments { scenario } = Arguments::parse();
    // One thread for all callers, so that what they cost is the same for every way.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    let ran = runtime.block_on(async {
        match scenario {
            Scenario::Layout(flags) => layout::run(&flags).await,
            Scenario::Get(flags) => get::run(&flags).await,
            Scenario::Target(flags) => Ok(target::serve(&flags).await?),
        }
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("loadtest: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
