//! Circles of files within a crate: files that name each other's items, directly or by way of others.
//!
//! A file may use what the modules above it define, because a parent is what its children share. All other uses count, and
//! a re-export counts as a use of the file that defines the item.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::graph::circles;
use super::source::{Crate, Mention, Source};

/// Re-exports of re-exports are followed this far.
const HOPS_MAX: usize = 8;

/// One violation for each circle of files, at a line that closes it.
pub fn check(krate: &Crate) -> Vec<Violation> {
    let files = FileGraph::new(krate);
    let uses = files.uses();
    let edges: BTreeSet<(&[String], &[String])> = uses.keys().copied().collect();
    let mut violations = Vec::new();
    for circle in circles(&edges) {
        let within = uses.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
        let proof: Vec<String> = within
            .clone()
            .map(|((from, to), place)| {
                format!(
                    "{} uses {} ({}:{})",
                    from.join("::"),
                    to.join("::"),
                    place.source.file.display(),
                    place.line
                )
            })
            .collect();
        let first = within.map(|(_, place)| place).next();
        if let Some(place) = first {
            let says = format!("these files use each other in a circle: {}", proof.join(", "));
            violations.push(Violation::at(&place.source.file, place.line, says));
        }
    }
    violations
}

/// The files of a crate by the paths of their modules.
struct FileGraph<'a> {
    krate: &'a Crate,
    by_module: BTreeMap<&'a [String], &'a Source>,
}

struct Place<'a> {
    source: &'a Source,
    line: usize,
}

impl<'a> FileGraph<'a> {
    fn new(krate: &'a Crate) -> Self {
        let files = krate.files.iter().filter(|source| !source.binary);
        Self { krate, by_module: files.map(|source| (source.module.as_slice(), source)).collect() }
    }

    /// The first line at which a file uses another one that is not above it.
    fn uses(&self) -> BTreeMap<(&'a [String], &'a [String]), Place<'a>> {
        let mut uses = BTreeMap::new();
        for source in self.by_module.values().copied() {
            for mention in &source.mentions {
                let Some(target) = self.defined_in(source, &mention.module, &mention.segments, 0) else {
                    continue;
                };
                if !source.module.starts_with(target) {
                    uses.entry((source.module.as_slice(), target))
                        .or_insert(Place { source, line: mention.line });
                }
            }
        }
        uses
    }

    /// The module of the file that defines what a path names; `None` for a module itself, a local name or another crate.
    fn defined_in(
        &self,
        source: &'a Source,
        module: &[String],
        path: &[String],
        hops: usize,
    ) -> Option<&'a [String]> {
        if hops > HOPS_MAX {
            return None;
        }
        let target = match path.first()?.as_str() {
            "crate" | "super" | "self" => self.krate.resolve(&mention(module, path))?,
            first if first == self.krate.name => self.krate.resolve(&mention(module, path))?,
            first => {
                if let Some(imported) = import(source, first).filter(|imported| *imported != path) {
                    let whole = [imported, &path[1..]].concat();
                    return self.defined_in(source, &source.module, &whole, hops + 1);
                }
                let child = [module, &path[..1]].concat();
                if !self.by_module.contains_key(child.as_slice()) {
                    return None;
                }
                [module, path].concat()
            }
        };
        let depth = (0..=target.len()).rev().find(|depth| self.by_module.contains_key(&target[..*depth]))?;
        let file = self.by_module[&target[..depth]];
        let name = target.get(depth)?;
        match import(file, name) {
            Some(imported) if file.module != source.module => {
                let whole = [imported, &target[depth + 1..]].concat();
                self.defined_in(file, &file.module, &whole, hops + 1)
            }
            _ => Some(file.module.as_slice()),
        }
    }
}

/// The path by which a file imports a name.
fn import<'a>(source: &'a Source, name: &str) -> Option<&'a [String]> {
    let imports = source.mentions.iter().filter(|mention| mention.imported && !mention.glob);
    let bears = |mention: &&Mention| {
        let last = mention.segments.iter().rfind(|segment| *segment != "self");
        mention.alias.as_ref().or(last).is_some_and(|it| it == name) && mention.module == source.module
    };
    imports.into_iter().find(bears).map(|mention| mention.segments.as_slice())
}

fn mention(module: &[String], segments: &[String]) -> Mention {
    let (module, segments) = (module.to_vec(), segments.to_vec());
    Mention { line: 0, module, segments, glob: false, imported: false, alias: None }
}
