//! The picture of `tombolo --help` in docs/pictures, which `.ci/pictures` draws.

use std::fs;
use std::process::Command;

use tests::binaries::binary;
use tests::sources;

/// The width of the terminal in the picture. `.ci/pictures` has the same.
const COLUMNS: &str = "110";

/// Empty lines are not drawn.
#[test]
fn the_picture_of_help_shows_what_tombolo_prints() {
    let picture = fs::read_to_string(sources::workspace().join("docs/pictures/help.svg")).unwrap();
    let output = Command::new(binary("tombolo")).arg("--help").env("COLUMNS", COLUMNS).output().unwrap();

    let drawn: Vec<String> =
        picture.lines().filter(|line| line.contains(" textLength=")).map(without_tags).collect();

    let printed = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<&str> = printed.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let (command, help) = drawn.split_first().expect("it has lines");
    assert_eq!(command, "$ tombolo --help");
    assert_eq!(help, printed, "draw the picture again, by: .ci/pictures help");
}

/// The text of an element on one line.
fn without_tags(element: &str) -> String {
    let mut text = String::new();
    for part in element.split('<').skip(1) {
        text += part.split_once('>').expect("a tag ends").1;
    }
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}
