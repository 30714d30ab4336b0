//! Sources and documents keep to the language that CONTRIBUTING.md describes.

use tests::language::{TextFile, comments, figures, files, names, retired, sentences};
use tests::layers::{Violation, expect_none, workspace};

#[test]
fn no_doc_comment_is_short_or_opens_with_a_bare_relative() {
    expect_none(sources().iter().flat_map(comments::check).collect());
}

#[test]
fn no_two_types_of_a_crate_have_one_name() {
    expect_none(names::check_types(&sources()));
}

#[test]
fn the_name_of_every_test_fits_on_a_line() {
    expect_none(sources().iter().flat_map(names::check_tests).collect());
}

#[test]
fn no_source_and_no_document_uses_a_retired_word() {
    expect_none(all().iter().flat_map(retired::check).collect());
}

#[test]
fn no_sentence_of_a_document_is_too_long() {
    let found =
        figures::sentences_of(&all(), |path| path.starts_with("docs") || path.as_os_str() == "README.md");
    assert!(found.len() > 1000, "{} sentences were read", found.len());

    let long = found.iter().filter(|sentence| sentence.words() > sentences::WORDS_MAX);
    let says = |sentence: &sentences::Sentence| format!("a sentence of {} words", sentence.words());
    expect_none(long.map(|it| Violation::at(&it.file, it.line, says(it))).collect());
}

fn sources() -> Vec<TextFile> {
    all().into_iter().filter(figures::is_compiled).collect()
}

fn all() -> Vec<TextFile> {
    files(&workspace()).unwrap_or_else(|violation| panic!("{violation}"))
}
