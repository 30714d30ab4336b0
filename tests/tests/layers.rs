//! Crates and modules keep to the layer table.

use tests::layers::edges::{self, Graph, Metadata};
use tests::layers::source::{self, Crate};
use tests::layers::table::{CRATES, LAYERED_CRATES, PRODUCTS, WITHOUT_CIRCLES, folder_of};
use tests::layers::{cycles, expect_none, file_circles, files, modules, workspace};

#[test]
fn every_module_uses_only_what_is_below_it() {
    let mut violations = Vec::new();
    for layered in LAYERED_CRATES {
        match Crate::read(&workspace(), layered.krate) {
            Ok(krate) => {
                violations.extend(modules::check(layered, &krate));
                for member in modules::built_meanwhile(layered, &krate) {
                    println!("{}: the module `{member}` exists; it is no longer planned", layered.krate);
                }
            }
            Err(violation) => violations.push(violation),
        }
    }
    expect_none(violations);
}

#[test]
fn modules_of_crates_without_layers_form_no_circle() {
    let crates = WITHOUT_CIRCLES.iter().map(|folder| Crate::read(&workspace(), folder));

    expect_none(
        crates.flat_map(|krate| krate.map_or_else(|error| vec![error], |it| cycles::check(&it))).collect(),
    );
}

#[test]
fn files_of_a_crate_form_no_circle() {
    let folders = CRATES.iter().flat_map(|layer| layer.members).map(|krate| folder_of(krate.name));
    let crates = folders.map(|folder| Crate::read(&workspace(), folder));

    expect_none(
        crates
            .flat_map(|krate| krate.map_or_else(|error| vec![error], |it| file_circles::check(&it)))
            .collect(),
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
fn names_for_few_files_stand_in_these_files_only() {
    let mut violations = Vec::new();
    for folder in PRODUCTS {
        match Crate::read(&workspace(), folder) {
            Ok(krate) => violations.extend(files::check_names(folder, &krate)),
            Err(violation) => violations.push(violation),
        }
    }
    expect_none(violations);
}

#[test]
fn every_file_has_a_purpose_and_an_end() {
    let root = workspace();
    let mut violations = Vec::new();
    let folders = CRATES.iter().flat_map(|layer| layer.members).map(|krate| folder_of(krate.name));
    for folder in folders.filter(|folder| root.join(folder).is_dir()) {
        for file in files::shaped_files(&root, folder).unwrap_or_else(|error| panic!("{error}")) {
            let text = source::read(&root, &file).unwrap_or_else(|error| panic!("{error}"));
            let (wrong, warning) = files::check_shape(&file, &text);
            violations.extend(wrong);
            if let Some(warning) = warning {
                println!("warning: {warning}");
            }
        }
    }
    expect_none(violations);
}
