//! `docs/faults.md` tells of every fault of the table, and of no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

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
