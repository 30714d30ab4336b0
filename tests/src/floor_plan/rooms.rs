//! Whether the rooms of a house see only what lies below them.

use std::collections::BTreeSet;
use std::path::Path;

use super::plan::{House, NAMED_BY_MAIN};
use super::source::{Crate, Mention, Source};
use super::{TABLE, Violation};

/// Everything that is wrong with the rooms of a house.
pub fn check(house: &House, krate: &Crate) -> Vec<Violation> {
    let mut violations = absent(house, krate);
    for source in &krate.files {
        violations.extend(source.disguises.iter().map(|line| disguised(source, *line)));
        for mention in &source.mentions {
            let Some(target) = krate.resolve(mention) else { continue };
            let found = match source.module.first() {
                Some(room) => from_room(house, room, mention, &target),
                None if source.binary => from_main(mention, &target),
                None => None, // `lib.rs` is the list of rooms: it stands above all of them.
            };
            violations.extend(found.map(|says| Violation::at(&source.file, mention.line, says)));
        }
    }
    violations.extend(unknown(house, krate));
    violations
}

/// The rooms that the table calls planned although they are there.
pub fn built_meanwhile(house: &House, krate: &Crate) -> Vec<&'static str> {
    let there = rooms_of(krate);
    let rooms = house.floors.iter().flat_map(|floor| floor.rooms);
    rooms.filter(|room| room.planned && there.contains(room.name)).map(|room| room.name).collect()
}

/// What is said of `#[path]` and `extern crate self`.
pub fn disguised(source: &Source, line: usize) -> Violation {
    Violation::at(
        &source.file,
        line,
        "this gives a module a name or a place that its file does not show; write it plainly",
    )
}

fn from_room(house: &House, room: &str, mention: &Mention, target: &[String]) -> Option<String> {
    let written = mention.segments.join("::");
    let Some(other) = target.first() else {
        return Some(format!("`{written}` takes in all rooms at once; name the room that is meant"));
    };
    if other == room {
        return None;
    }
    let Some(below) = house.floor_of(other) else {
        return Some(format!(
            "`{written}` names `{other}` of the crate's root, which is no room; name the room where it lives"
        ));
    };
    let here = house.floor_of(room)?;
    let side = match below.cmp(&here) {
        std::cmp::Ordering::Greater => return None,
        std::cmp::Ordering::Equal => "sideways",
        std::cmp::Ordering::Less => "up",
    };
    let (from, to) = (house.floors[here].name, house.floors[below].name);
    Some(format!(
        "`{written}` points {side}: from `{room}` ({from}) to `{other}` ({to}); a room sees only what is below it"
    ))
}

fn from_main(mention: &Mention, target: &[String]) -> Option<String> {
    if target.first().is_some_and(|room| NAMED_BY_MAIN.contains(&room.as_str())) {
        return None;
    }
    let written = mention.segments.join("::");
    Some(format!("`{written}`: a main.rs names only `{}`", NAMED_BY_MAIN.join("` and `")))
}

fn absent(house: &House, krate: &Crate) -> Vec<Violation> {
    let there = rooms_of(krate);
    let rooms = house.floors.iter().flat_map(|floor| floor.rooms);
    rooms
        .filter(|room| !room.planned && !there.contains(room.name))
        .map(|room| {
            let says = format!(
                "{} has no room `{}`; build it, or call it planned in this table",
                house.krate, room.name
            );
            Violation::of(Path::new(TABLE), says)
        })
        .collect()
}

fn unknown(house: &House, krate: &Crate) -> Vec<Violation> {
    let rooms = krate.files.iter().filter_map(|source| Some((source, source.module.first()?)));
    let mut told = BTreeSet::new();
    rooms
        .filter(|(_, room)| house.floor_of(room).is_none() && told.insert((*room).clone()))
        .map(|(source, room)| {
            let says = format!("the floor plan of {} has no room `{room}`; add it in {TABLE}", house.krate);
            Violation::of(&source.file, says)
        })
        .collect()
}

fn rooms_of(krate: &Crate) -> BTreeSet<&str> {
    krate.files.iter().filter_map(|source| source.module.first()).map(String::as_str).collect()
}
