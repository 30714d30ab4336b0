//! Makes the pages of the reference from the code that they describe, and compares them with those in the repository.
//!
//! Tests use this crate, and nothing that is shipped does. The structs of a configuration and the definition of a command
//! line are private to their crates, so each crate has a test of its own.

mod claims;
mod commands;
mod keys;
mod page;
mod schema;

use std::path::{Path, PathBuf};
use std::{env, fs};

pub use claims::{TriedClaims, try_bounds, try_defaults, yaml};
pub use commands::commands_page;
pub use page::configuration_page;
pub use schema::{DaemonSchema, file_schema, schema_of};

/// The folder of the reference in the repository.
pub const FOLDER: &str = "docs/reference";

/// The variable that rewrites the files in place of comparing them.
const WRITE: &str = "TOMBOLO_WRITE_REFERENCE";

/// Compares a file of [`FOLDER`] with the text that it has to have, or writes it if `TOMBOLO_WRITE_REFERENCE` is set.
///
/// # Panics
///
/// The file differs. The message says how to write it again.
pub fn compare(name: &str, text: &str) {
    let path = folder().join(name);
    if env::var_os(WRITE).is_some() {
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let line = committed.lines().zip(text.lines()).position(|(is, has_to_be)| is != has_to_be);
    let line = line.unwrap_or_else(|| committed.lines().count().min(text.lines().count())) + 1;
    assert!(
        committed == text,
        "{FOLDER}/{name} is not as the code says, from line {line} on. Run: {WRITE}=1 cargo test -p daemon -p policy \
         -p tunnel-agent -p tunnel-server -p node-lb -p cli reference"
    );
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FOLDER)
}
