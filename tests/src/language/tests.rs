//! Each rule of language finds what breaks it, and leaves alone what does not.

use std::path::{Path, PathBuf};

use super::{TextFile, comments, names, retired, sentences};

#[test]
fn a_short_comment_and_a_bare_relative_are_found() {
    let file = rust(
        "/// The port.\nconst A: u8 = 1;\n\n/// Which clusters can be reached right now.\nconst B: u8 = 2;\n",
    );

    let found: Vec<usize> = comments::check(&file).iter().map(|violation| violation.line).collect();

    assert_eq!(found, [1, 4]);
}

#[test]
fn a_relative_behind_a_preposition_is_a_bare_relative() {
    assert_eq!(comments::check(&rust("/// Of which none may be open.\nconst A: u8 = 1;\n")).len(), 1);
}

#[test]
fn only_the_first_paragraph_of_a_comment_is_judged() {
    let file = rust(
        "//! Reads the slices of a Service.\n//!\n//! Where\n\n/// Reads the ports of a Service.\n///\n/// Why?\n",
    );

    assert_eq!(comments::check(&file), []);
}

#[test]
fn lines_of_a_paragraph_are_one_sentence() {
    let comments =
        comments::of_file(Path::new("a.rs"), "    /// Reads the\n    /// slices.\n    fn a() {}\n");

    assert_eq!(comments[0].text, "Reads the slices.");
    assert_eq!((comments[0].line, comments.len()), (1, 1));
}

#[test]
fn a_test_name_of_71_characters_is_found_and_one_of_70_is_not() {
    let test = |length: usize| rust(&format!("#[tokio::test]\nasync fn {}() {{}}\n", "a".repeat(length)));

    assert_eq!(names::check_tests(&test(70)), []);
    assert_eq!(names::check_tests(&test(71)).len(), 1);
}

#[test]
fn a_long_function_that_is_no_test_is_left_alone() {
    assert_eq!(names::check_tests(&rust(&format!("fn {}() {{}}\n", "a".repeat(80)))), []);
}

#[test]
fn one_type_name_in_two_files_of_a_crate_is_found_at_the_second() {
    let files = [at("proto/src/a.rs", "struct Entry;"), at("proto/src/b/c.rs", "mod d { enum Entry {} }")];

    let found = names::check_types(&files);

    assert_eq!(found.len(), 1);
    assert_eq!(found[0].file, PathBuf::from("proto/src/b/c.rs"));
    assert!(found[0].says.contains("proto/src/a.rs:1"), "{}", found[0].says);
}

#[test]
fn types_of_two_crates_and_of_two_test_programs_may_share_a_name() {
    let files = [
        at("proto/src/a.rs", "struct Entry;"),
        at("trust/src/a.rs", "struct Entry;"),
        at("proto/tests/a.rs", "type Entry = u8;"),
        at("proto/tests/b/main.rs", "trait Entry {}"),
        at("tests/src/a.rs", "struct Entry;"),
        at("tests/src/bin/b.rs", "struct Entry;"),
        at("tests/tests/a.rs", "struct Entry;"),
        at("tests/linksim/src/a.rs", "struct Entry;"),
    ];

    assert_eq!(names::check_types(&files), []);
}

#[test]
fn two_files_of_one_test_program_are_one_crate() {
    let files = [at("tests/tests/link/a.rs", "struct Site;"), at("tests/tests/link/b.rs", "struct Site;")];

    assert_eq!(names::check_types(&files).len(), 1);
}

#[test]
fn types_within_functions_and_associated_types_are_not_of_the_crate() {
    let file = rust("fn a() { struct A; }\nfn b() { struct A; }\nimpl X for Y { type A = u8; }\nstruct A;");

    assert_eq!(names::check_types([&file]), []);
}

#[test]
fn a_retired_word_is_found_in_every_case_and_as_part_of_a_name() {
    for line in [
        "a door",
        "Doors of",
        "fn open_door()",
        "struct OpenDoor;",
        "`way-in:NAME`",
        "a WayIn",
        "two ways in",
    ] {
        assert_eq!(retired::check(&at("docs/a.md", line)).len(), 1, "{line}");
    }
}

#[test]
fn words_that_contain_a_retired_word_are_left_alone() {
    for line in ["outdoors", "a shallow copy", "the way into the cluster", "desktop"] {
        assert_eq!(retired::check(&at("docs/a.md", line)), [], "{line}");
    }
}

#[test]
fn sentences_of_paragraphs_items_and_cells_are_counted_and_code_is_not() {
    let page = "# A heading of a page\n\nOne sentence\nof v1.36 here. And (more.) Third one\n\n* An item `x`.\n\n\
                ```console\n$ not a sentence.\n```\n| `name` | Means a thing. |\n";

    let found: Vec<(usize, usize)> =
        sentences::of_file(&at("docs/a.md", page)).iter().map(|it| (it.line, it.words())).collect();

    assert_eq!(found, [(3, 5), (3, 2), (3, 2), (6, 3), (11, 3)]);
}

fn rust(text: &str) -> TextFile {
    at("proto/src/a.rs", text)
}

fn at(path: &str, text: &str) -> TextFile {
    TextFile { path: PathBuf::from(path), text: text.to_owned() }
}
