//! The house is built as the floor plan says.

use tests::floor_plan::edges::{self, Graph, Metadata};
use tests::floor_plan::plan::{CRATES, HOUSES, PRODUCTS, WITHOUT_CIRCLES, folder_of};
use tests::floor_plan::source::{self, Crate};
use tests::floor_plan::{cycles, expect_none, habits, rooms, workspace};

#[test]
fn every_room_sees_only_what_is_below_it() {
    let mut violations = Vec::new();
    for house in HOUSES {
        match Crate::read(&workspace(), house.krate) {
            Ok(krate) => {
                violations.extend(rooms::check(house, &krate));
                for room in rooms::built_meanwhile(house, &krate) {
                    println!("{}: the room `{room}` is there; it is no longer planned", house.krate);
                }
            }
            Err(violation) => violations.push(violation),
        }
    }
    expect_none(violations);
}

#[test]
fn modules_of_crates_without_floors_form_no_circle() {
    let crates = WITHOUT_CIRCLES.iter().map(|folder| Crate::read(&workspace(), folder));

    expect_none(
        crates.flat_map(|krate| krate.map_or_else(|error| vec![error], |it| cycles::check(&it))).collect(),
    );
}

#[test]
fn every_crate_depends_only_on_what_is_below_it() {
    let metadata = Metadata::of(&workspace()).unwrap_or_else(|error| panic!("{error}"));

    expect_none(edges::check(&metadata));
}

#[test]
fn nothing_banned_is_compiled() {
    let graph = Graph::of(&workspace()).unwrap_or_else(|error| panic!("{error}"));

    expect_none(edges::check_banned(&graph));
}

#[test]
fn what_few_may_name_is_named_by_few() {
    let mut violations = Vec::new();
    for folder in PRODUCTS {
        match Crate::read(&workspace(), folder) {
            Ok(krate) => violations.extend(habits::check_names(folder, &krate)),
            Err(violation) => violations.push(violation),
        }
    }
    expect_none(violations);
}

#[test]
fn every_file_has_a_purpose_and_an_end() {
    let root = workspace();
    let mut violations = Vec::new();
    let folders = CRATES.iter().flat_map(|floor| floor.rooms).map(|krate| folder_of(krate.name));
    for folder in folders.filter(|folder| root.join(folder).is_dir()) {
        for file in habits::shaped_files(&root, folder).unwrap_or_else(|error| panic!("{error}")) {
            let text = source::read(&root, &file).unwrap_or_else(|error| panic!("{error}"));
            let (wrong, warning) = habits::check_shape(&file, &text);
            violations.extend(wrong);
            if let Some(warning) = warning {
                println!("warning: {warning}");
            }
        }
    }
    expect_none(violations);
}
