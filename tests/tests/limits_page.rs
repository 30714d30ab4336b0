//! `docs/limits.md` names constants and tests that exist.

use std::collections::BTreeSet;
use std::fs;

use tests::sources;

#[test]
fn every_constant_is_where_the_page_says_and_every_test_exists() {
    let (root, sources) = (sources::workspace(), sources::all());
    let page = fs::read_to_string(root.join("docs/limits.md")).expect("the page");

    let mut seen = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with('|') && line.contains('`')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [what, constant, _, _, test] = cells.as_slice() else { panic!("five columns: {row}") };
        let (name, file) = constant.split_once(" in ").unwrap_or_else(|| panic!("`NAME` in `FILE`: {row}"));
        let (name, file) = (name.trim_matches('`'), file.trim_matches('`'));
        let text = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let is_there = text.contains(&format!("const {name}:")) || text.contains(&format!("pub {name}: "));
        assert!(is_there, "{file} has no {name}");
        let test = test.split('`').nth(1).unwrap_or_else(|| panic!("a test: {row}"));
        assert!(sources::has_test(&sources, test), "there is no test {test}");
        assert!(seen.insert((what.to_owned(), constant.to_owned())), "twice: {row}");
    }
    assert!(seen.len() >= 30, "{} rows", seen.len());
}
