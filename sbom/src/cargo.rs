//! Asks cargo which crates a program is made of, and what it knows about each.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};
use std::{env, io};

use serde::Deserialize;

/// A crate by name and version. No two of a workspace have both in common.
pub(crate) type CrateId = (String, String);

/// The crates of one program.
#[derive(Debug, Default)]
pub(crate) struct Crates {
    /// The crates whose code is in the program.
    pub(crate) shipped: BTreeSet<CrateId>,
    /// The crates that take part in the build: the shipped ones, macros, and those of build scripts.
    pub(crate) built: BTreeSet<CrateId>,
    /// The facts about each crate of the workspace's graph.
    pub(crate) facts: BTreeMap<CrateId, CrateFacts>,
}

/// The facts that cargo knows about a crate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CrateFacts {
    /// The license expression, if the crate states one.
    pub(crate) license: Option<String>,
    /// True if it comes from a registry, and false if it is of this workspace.
    pub(crate) is_foreign: bool,
    /// The SHA-256 of its package, as the registry and Cargo.lock have it.
    pub(crate) checksum: Option<String>,
    /// The crates that it depends on, except for its own tests.
    pub(crate) dependencies: BTreeSet<CrateId>,
}

/// The reason why cargo's answer cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CargoError {
    #[error("cargo cannot be run: {0}")]
    NotRun(#[source] io::Error),
    #[error("cargo {0} failed: {1}")]
    Failed(String, String),
    #[error("the answer of cargo metadata is not as expected: {0}")]
    Metadata(#[from] serde_json::Error),
    #[error("cargo tree printed a line that is no crate: {0}")]
    Tree(String),
    #[error("Cargo.lock cannot be read: {0}")]
    Lock(#[source] io::Error),
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
    workspace_root: String,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// The crates of a package for a target, by `cargo tree`. It knows the features of that package alone, where
/// `cargo metadata` has those of the whole workspace.
pub(crate) fn crates(package: &str, target: &str) -> Result<Crates, CargoError> {
    let tree = |edges: &str| {
        let words = ["tree", "--locked", "--package", package, "--target", target, "--prefix", "none"];
        parse_tree(&cargo(&[words.as_slice(), &["--format", "{p}", "--edges", edges]].concat())?)
    };
    let (shipped, built) = (tree("normal,no-proc-macro")?, tree("normal,build")?);
    let metadata = cargo(&["metadata", "--locked", "--format-version", "1", "--filter-platform", target])?;
    let metadata: Metadata = serde_json::from_str(&metadata)?;
    let lock = std::fs::read_to_string(format!("{}/Cargo.lock", metadata.workspace_root));
    let checksums = parse_checksums(&lock.map_err(CargoError::Lock)?);
    Ok(Crates { shipped, built, facts: facts(metadata, &checksums) })
}

fn cargo(words: &[&str]) -> Result<String, CargoError> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output: Output = Command::new(program).args(words).output().map_err(CargoError::NotRun)?;
    if !output.status.success() {
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(CargoError::Failed(words.join(" "), says));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads lines such as `serde v1.0.229`, and `proto v0.1.0 (/src/proto) (*)`.
fn parse_tree(text: &str) -> Result<BTreeSet<CrateId>, CargoError> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let (name, version) = (words.next(), words.next().and_then(|word| word.strip_prefix('v')));
            let found = name.zip(version).ok_or_else(|| CargoError::Tree(line.to_owned()))?;
            Ok((found.0.to_owned(), found.1.to_owned()))
        })
        .collect()
}

/// The checksums of Cargo.lock, whose packages are blocks of lines such as `name = "serde"`.
fn parse_checksums(lock: &str) -> BTreeMap<CrateId, String> {
    let mut checksums = BTreeMap::new();
    for block in lock.split("[[package]]") {
        let value = |key: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
            Some(line.trim_end_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) = (value("name"), value("version"), value("checksum")) {
            checksums.insert((name, version), sum);
        }
    }
    checksums
}

fn facts(metadata: Metadata, checksums: &BTreeMap<CrateId, String>) -> BTreeMap<CrateId, CrateFacts> {
    let ids: BTreeMap<&str, CrateId> = metadata
        .packages
        .iter()
        .map(|package| (package.id.as_str(), (package.name.clone(), package.version.clone())))
        .collect();
    let mut dependencies: BTreeMap<&str, BTreeSet<CrateId>> = BTreeMap::new();
    for node in &metadata.resolve.nodes {
        let built = node
            .deps
            .iter()
            .filter(|dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev")));
        let found = built.filter_map(|dependency| ids.get(dependency.pkg.as_str()).cloned()).collect();
        dependencies.insert(&node.id, found);
    }
    let facts_of = |package: &Package| {
        let id = (package.name.clone(), package.version.clone());
        let facts = CrateFacts {
            license: package.license.clone(),
            is_foreign: package.source.is_some(),
            checksum: checksums.get(&id).cloned(),
            dependencies: dependencies.get(package.id.as_str()).cloned().unwrap_or_default(),
        };
        (id, facts)
    };
    metadata.packages.iter().map(facts_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_read_from_the_lines_of_cargo_tree() {
        let text = "tunnel-agent v0.1.0 (/src/tunnel-agent)\nserde v1.0.229\nproto v0.1.0 (/src/proto) (*)\n\nserde v1.0.229 (*)\n";

        let found = parse_tree(text).unwrap();

        let expected = [("proto", "0.1.0"), ("serde", "1.0.229"), ("tunnel-agent", "0.1.0")];
        assert!(found.iter().map(|(name, version)| (name.as_str(), version.as_str())).eq(expected));
        assert!(matches!(parse_tree("warning: nothing"), Err(CargoError::Tree(_))));
    }

    #[test]
    fn checksums_are_read_from_the_blocks_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.2.3\"\nsource = \"registry\"\nchecksum = \"5a15\"\n\
                    dependencies = [\n \"b\",\n]\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";

        let found = parse_checksums(lock);

        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(("a".into(), "1.2.3".into()), "5a15".into())]);
    }
}
