//! `docs/limits.md` speaks of constants and tests that exist.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_constant_stands_where_the_page_says_and_every_test_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let page = fs::read_to_string(root.join("docs/limits.md")).expect("the page");
    let sources: String = sources(root).iter().map(|path| fs::read_to_string(path).unwrap()).collect();

    let mut rows = 0;
    for row in page.lines().filter(|line| line.starts_with('|') && line.contains('`')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, constant, _, _, test] = cells.as_slice() else { panic!("five columns: {row}") };
        let (name, file) = constant.split_once(" in ").unwrap_or_else(|| panic!("`NAME` in `FILE`: {row}"));
        let (name, file) = (name.trim_matches('`'), file.trim_matches('`'));
        let text = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let is_there = text.contains(&format!("const {name}:")) || text.contains(&format!("pub {name}: "));
        assert!(is_there, "{file} has no {name}");
        let test = test.split('`').nth(1).unwrap_or_else(|| panic!("a test: {row}"));
        assert!(sources.contains(&format!("fn {test}(")), "there is no test {test}");
        rows += 1;
    }
    assert!(rows >= 30, "{rows} rows");
}

/// Every Rust file of the crates.
fn sources(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() && !name.to_string_lossy().starts_with('.') && name != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    found
}
