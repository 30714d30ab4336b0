//! Dependencies between crates, as cargo reports them, point down only, and banned packages stay out of the
//! graph.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::table::{BANNED, CRATES, REFUSED, RESERVED};
use super::{TABLE, Violation};

/// The platforms for which the graph is looked at: what only others would pull in does not matter.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// The part of `cargo metadata` that the layer table needs.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

/// The name of every package that is compiled, ours included.
#[derive(Debug)]
pub struct Graph(BTreeSet<String>);

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    /// The name of the package, whatever the crate calls it.
    name: String,
}

/// cargo could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum CargoError {
    /// cargo could not be started.
    #[error("cargo could not be started")]
    Start(#[source] std::io::Error),
    /// cargo ended with an exit code other than 0.
    #[error("cargo failed: {0}")]
    Refused(String),
    /// The answer is not what it should be.
    #[error("the answer of `cargo metadata` is not understood")]
    Answer(#[source] serde_json::Error),
}

impl Metadata {
    /// Asks cargo about the workspace at `root`, as `Cargo.lock` has it.
    pub fn of(root: &Path) -> Result<Self, CargoError> {
        Self::parse(&cargo(root, &["metadata", "--format-version=1", "--no-deps"])?)
    }

    /// Reads the JSON that `cargo metadata` wrote.
    pub fn parse(json: &[u8]) -> Result<Self, CargoError> {
        serde_json::from_slice(json).map_err(CargoError::Answer)
    }

    /// The names of our crates.
    pub fn members(&self) -> Vec<&str> {
        self.ours().map(|package| package.name.as_str()).collect()
    }

    fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

impl Graph {
    /// Asks cargo what is compiled for our platforms, for tests and by build scripts too.
    ///
    /// `cargo tree` knows which features are really on; `cargo metadata` also lists what only a lock file needs.
    pub fn of(root: &Path) -> Result<Self, CargoError> {
        let platforms = PLATFORMS.map(|platform| format!("--target={platform}"));
        let fixed = [
            "tree",
            "--workspace",
            "--edges=normal,build,dev",
            "--prefix=none",
            "--format={p}",
            "--no-dedupe",
        ];
        let arguments: Vec<&str> = fixed.into_iter().chain(platforms.iter().map(String::as_str)).collect();
        Ok(Self::parse(&String::from_utf8_lossy(&cargo(root, &arguments)?)))
    }

    /// Reads what cargo wrote: one package per line, its name first.
    pub fn parse(tree: &str) -> Self {
        Self(tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
    }
}

/// Everything that is wrong with the edges between crates.
pub fn check(metadata: &Metadata) -> Vec<Violation> {
    let members = metadata.members();
    let mut violations = Vec::new();
    for package in metadata.ours() {
        let manifest = Path::new(&package.name).join("Cargo.toml");
        let names = package.dependencies.iter().map(|dependency| dependency.name.as_str());
        let mut says: Vec<String> = if layer_of(&package.name).is_none() {
            vec![format!("the layer table has no crate `{}`; add it in {TABLE}", package.name)]
        } else {
            names.filter_map(|name| refusal(&members, &package.name, name)).collect()
        };
        says.dedup();
        violations.extend(says.into_iter().map(|says| Violation::of(&manifest, says)));
    }
    violations.extend(absent(&members));
    violations
}

/// The banned crates that are compiled.
pub fn check_banned(graph: &Graph) -> Vec<Violation> {
    BANNED
        .iter()
        .filter(|name| graph.0.contains(**name))
        .map(|name| {
            let says = format!(
                "`{name}` is in the graph and must not be; `cargo tree --invert {name}` says why it is"
            );
            Violation::of(Path::new("Cargo.lock"), says)
        })
        .collect()
}

fn refusal(members: &[&str], name: &str, dependency: &str) -> Option<String> {
    if members.contains(&dependency) {
        // An unknown crate is told of once, by itself.
        let (here, below) = (layer_of(name)?, layer_of(dependency)?);
        let side = match below.cmp(&here) {
            std::cmp::Ordering::Greater => return None,
            std::cmp::Ordering::Equal => "sideways",
            std::cmp::Ordering::Less => "up",
        };
        return Some(format!(
            "`{name}` depends {side} on `{dependency}`; a crate sees only what is below it"
        ));
    }
    if let Some(rule) = REFUSED.iter().find(|rule| rule.krate == name && rule.dependency == dependency) {
        return Some(format!("`{name}` must not depend on `{dependency}`: {}", rule.why));
    }
    let rule = RESERVED.iter().find(|rule| rule.dependency == dependency && !rule.crates.contains(&name))?;
    Some(format!("`{name}` depends on `{dependency}`, which is for {} only", rule.crates.join(", ")))
}

fn absent(members: &[&str]) -> Vec<Violation> {
    let crates = CRATES.iter().flat_map(|layer| layer.members);
    crates
        .filter(|krate| !krate.planned && !members.contains(&krate.name))
        .map(|krate| {
            let says = format!(
                "the workspace has no crate `{}`; build it, or call it planned in this table",
                krate.name
            );
            Violation::of(Path::new(TABLE), says)
        })
        .collect()
}

fn layer_of(name: &str) -> Option<usize> {
    CRATES.iter().position(|layer| layer.members.iter().any(|member| member.name == name))
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<Vec<u8>, CargoError> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .arg("--locked")
        .current_dir(root)
        .output()
        .map_err(CargoError::Start)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(CargoError::Refused(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}
