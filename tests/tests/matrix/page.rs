//! `docs/faults.md` tells of every fault of the table, and of no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tests::matrix::fault::Injection;
use tests::matrix::table::rows;

#[test]
fn the_page_lists_the_faults_of_the_table_and_no_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/faults.md");
    let page = fs::read_to_string(path).unwrap();
    let listed: BTreeSet<(&str, &str)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" | "))
        .filter_map(|(id, rest)| Some((id, rest.split_once(" |")?.0)))
        .filter(|(id, _)| id.starts_with(|first: char| first.is_ascii_digit()))
        .collect();
    let known: BTreeSet<(&str, &str)> = rows().map(|row| (row.id, row.fault)).collect();
    assert_eq!(listed, known, "`make chaos` writes the page");
}

#[test]
fn the_tests_that_show_a_fault_elsewhere_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources: String =
        ["tests/tests", "transport/tests"].iter().map(|folder| text(&root.join(folder))).collect();
    for row in rows() {
        if let Injection::Elsewhere(name) = row.injection {
            assert!(sources.contains(&format!("fn {name}(")), "{}: there is no test {name}", row.id);
        }
    }
}

/// All sources under a folder.
fn text(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let read = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => text(&path),
        Some(end) if end == "rs" => fs::read_to_string(path).unwrap(),
        _ => String::new(),
    };
    entries.map(read).collect()
}
