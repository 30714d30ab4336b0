//! Circles of top-level modules, which a crate without layers must not have.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::graph::circles;
use super::modules::disguised;
use super::source::{Crate, Mention, Source};

/// One violation per circle of modules, at a path that closes it.
pub fn check(krate: &Crate) -> Vec<Violation> {
    let edges = edges(krate);
    let mut violations: Vec<Violation> = krate
        .files
        .iter()
        .flat_map(|source| source.disguises.iter().map(|line| disguised(source, *line)))
        .collect();
    for circle in circles(&edges.keys().copied().collect()) {
        let mut proof = Vec::new();
        for ((from, to), (source, mention)) in &edges {
            if circle.contains(from) && circle.contains(to) {
                let place = format!("{}:{}", source.file.display(), mention.line);
                proof.push(format!("{from} names {to} ({place})"));
            }
        }
        let first = edges.iter().find(|((from, to), _)| circle.contains(from) && circle.contains(to));
        if let Some((_, (source, mention))) = first {
            let says = format!("these modules lean on each other in a circle: {}", proof.join(", "));
            violations.push(Violation::at(&source.file, mention.line, says));
        }
    }
    violations
}

type Edges<'a> = BTreeMap<(&'a str, &'a str), (&'a Source, &'a Mention)>;

// One mention per pair of modules is proof enough.
fn edges(krate: &Crate) -> Edges<'_> {
    let modules: BTreeSet<&str> =
        krate.files.iter().filter_map(|source| source.module.first()).map(String::as_str).collect();
    let exported = exported(krate, &modules);
    let mut edges = Edges::new();
    for source in &krate.files {
        let Some(from) = source.module.first() else { continue };
        for mention in &source.mentions {
            let Some(target) = krate.resolve(mention) else { continue };
            let Some(name) = target.first() else { continue };
            let to = modules.get(name.as_str()).or_else(|| exported.get(name.as_str())).copied();
            if let Some(to) = to.filter(|to| to != from) {
                edges.entry((from, to)).or_insert((source, mention));
            }
        }
    }
    edges
}

// What the root re-exports: name → module, so that `crate::Name` is a path to that module.
fn exported<'a>(krate: &'a Crate, modules: &BTreeSet<&'a str>) -> BTreeMap<&'a str, &'a str> {
    let roots = krate.files.iter().filter(|source| source.module.is_empty());
    let uses = roots.flat_map(|source| &source.mentions).filter(|mention| mention.imported);
    uses.filter_map(|mention| {
        let mut segments =
            mention.segments.iter().map(String::as_str).skip_while(|name| ["crate", "self"].contains(name));
        let module = *modules.get(segments.next()?)?;
        let name = mention.alias.as_deref().or_else(|| segments.last())?;
        Some((name, module))
    })
    .collect()
}
