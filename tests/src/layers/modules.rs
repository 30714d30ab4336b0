//! Modules of a layered crate use only modules of lower layers.

use std::collections::BTreeSet;
use std::path::Path;

use super::source::{Crate, Mention, Source};
use super::table::{LayeredCrate, NAMED_BY_MAIN};
use super::{TABLE, Violation};

/// Every breach by the modules of a layered crate.
pub fn check(layered: &LayeredCrate, krate: &Crate) -> Vec<Violation> {
    let mut violations = absent(layered, krate);
    for source in &krate.files {
        violations.extend(source.disguises.iter().map(|line| disguised(source, *line)));
        for mention in &source.mentions {
            let Some(target) = krate.resolve(mention) else { continue };
            let found = match source.module.first() {
                Some(member) => from_member(layered, member, mention, &target),
                None if source.binary => from_main(mention, &target),
                None => None, // `lib.rs` is the list of members: it stands above all of them.
            };
            violations.extend(found.map(|says| Violation::at(&source.file, mention.line, says)));
        }
    }
    violations.extend(unknown(layered, krate));
    violations
}

/// The modules that the table calls planned although they exist.
pub fn built_meanwhile(layered: &LayeredCrate, krate: &Crate) -> Vec<&'static str> {
    let there = members_of(krate);
    let members = layered.layers.iter().flat_map(|layer| layer.members);
    members.filter(|member| member.planned && there.contains(member.name)).map(|member| member.name).collect()
}

/// The violation for a `#[path]` or an `extern crate self`.
pub fn disguised(source: &Source, line: usize) -> Violation {
    Violation::at(
        &source.file,
        line,
        "this gives a module a name or a place that its file does not show; write it plainly",
    )
}

fn from_member(layered: &LayeredCrate, member: &str, mention: &Mention, target: &[String]) -> Option<String> {
    let written = mention.segments.join("::");
    let Some(other) = target.first() else {
        return Some(format!("`{written}` imports all modules at once; name the one you need"));
    };
    if other == member {
        return None;
    }
    let Some(below) = layered.layer_of(other) else {
        return Some(format!(
            "`{written}` names `{other}` of the crate's root, which is no module; name the module where it lives"
        ));
    };
    let here = layered.layer_of(member)?;
    let side = match below.cmp(&here) {
        std::cmp::Ordering::Greater => return None,
        std::cmp::Ordering::Equal => "sideways",
        std::cmp::Ordering::Less => "up",
    };
    let (from, to) = (layered.layers[here].name, layered.layers[below].name);
    Some(format!(
        "`{written}` points {side}: from `{member}` ({from}) to `{other}` ({to}); a module uses only what is below it"
    ))
}

fn from_main(mention: &Mention, target: &[String]) -> Option<String> {
    if target.first().is_some_and(|member| NAMED_BY_MAIN.contains(&member.as_str())) {
        return None;
    }
    let written = mention.segments.join("::");
    Some(format!("`{written}`: a main.rs names only `{}`", NAMED_BY_MAIN.join("` and `")))
}

fn absent(layered: &LayeredCrate, krate: &Crate) -> Vec<Violation> {
    let there = members_of(krate);
    let members = layered.layers.iter().flat_map(|layer| layer.members);
    members
        .filter(|member| !member.planned && !there.contains(member.name))
        .map(|member| {
            let says = format!(
                "{} has no module `{}`; build it, or call it planned in this table",
                layered.krate, member.name
            );
            Violation::of(Path::new(TABLE), says)
        })
        .collect()
}

fn unknown(layered: &LayeredCrate, krate: &Crate) -> Vec<Violation> {
    let members = krate.files.iter().filter_map(|source| Some((source, source.module.first()?)));
    let mut reported = BTreeSet::new();
    members
        .filter(|(_, member)| layered.layer_of(member).is_none() && reported.insert((*member).clone()))
        .map(|(source, member)| {
            let says =
                format!("the layer table of {} has no module `{member}`; add it in {TABLE}", layered.krate);
            Violation::of(&source.file, says)
        })
        .collect()
}

fn members_of(krate: &Crate) -> BTreeSet<&str> {
    krate.files.iter().filter_map(|source| source.module.first()).map(String::as_str).collect()
}
