//! `docs/faults.md` lists every fault of the table, and no other.

use std::collections::BTreeSet;
use std::fs;

use tests::matrix::fault::Injection;
use tests::matrix::table::rows;
use tests::sources;

#[test]
fn the_page_lists_the_faults_of_the_table_and_no_other() {
    let page = fs::read_to_string(sources::workspace().join("docs/faults.md")).unwrap();
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
    let sources = sources::all();
    for row in rows() {
        if let Injection::Elsewhere(name) = row.injection {
            assert!(sources::has_test(&sources, name), "{}: there is no test {name}", row.id);
        }
    }
}
