//! Doc comments are sentences: five words at least, and no bare relative as the first word.

use std::path::{Path, PathBuf};

use super::TextFile;
use crate::layers::Violation;

/// A shorter comment says nothing that the name of its item does not say.
pub const WORDS_MIN: usize = 5;

/// A first word that leaves the reader to guess the subject.
pub const BARE_RELATIVES: &[&str] = &[
    "what", "whatever", "who", "whoever", "whom", "whose", "which", "where", "wherever", "how", "why",
    "whether",
];

/// The first paragraph of a `///` or `//!` comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The file, relative to the root of the workspace.
    pub file: PathBuf,
    /// The first line of the comment, from 1.
    pub line: usize,
    /// The first paragraph, its lines joined by spaces.
    pub text: String,
}

impl Comment {
    /// The number of words in the first paragraph.
    pub fn words(&self) -> usize {
        self.text.split_whitespace().count()
    }

    /// Returns true if the first paragraph has fewer than [`WORDS_MIN`] words.
    pub fn is_short(&self) -> bool {
        self.words() < WORDS_MIN
    }

    /// Returns true if the first word is one of [`BARE_RELATIVES`], or the second one behind `of`, `by`,
    /// `in`, `to` and the like.
    pub fn opens_with_a_relative(&self) -> bool {
        let mut words = self.text.split_whitespace().map(bare);
        let first = words.next().unwrap_or_default();
        let second = words.next().unwrap_or_default();
        let behind_a_preposition =
            ["of", "by", "in", "to", "for", "from", "at"].contains(&first.as_str()) && is_relative(&second);
        is_relative(&first) || behind_a_preposition
    }
}

/// Every doc comment of a Rust file.
pub fn of_file(file: &Path, text: &str) -> Vec<Comment> {
    let mut comments = Vec::new();
    let mut open: Option<Comment> = None;
    let mut marker_before = "";
    // The first paragraph has ended, and the comment goes on.
    let mut rest = false;
    for (index, line) in text.lines().enumerate() {
        let Some((marker, content)) = doc_line(line) else {
            comments.extend(open.take());
            marker_before = "";
            rest = false;
            continue;
        };
        if marker != marker_before {
            comments.extend(open.take());
            rest = false;
        }
        marker_before = marker;
        if content.is_empty() {
            comments.extend(open.take());
            rest = true;
        } else if let Some(comment) = &mut open {
            comment.text.push(' ');
            comment.text.push_str(content);
        } else if !rest {
            open = Some(Comment { file: file.to_owned(), line: index + 1, text: content.to_owned() });
        }
    }
    comments.extend(open);
    comments
}

/// One violation for each comment of a Rust file that is short or opens with a bare relative.
pub fn check(file: &TextFile) -> Vec<Violation> {
    let wrong = of_file(&file.path, &file.text).into_iter().filter_map(|comment| {
        let says = if comment.is_short() {
            format!("a doc comment of fewer than {WORDS_MIN} words: \"{}\"", comment.text)
        } else if comment.opens_with_a_relative() {
            format!("a doc comment opens with a bare relative, name the subject: \"{}\"", comment.text)
        } else {
            return None;
        };
        Some(Violation::at(&comment.file, comment.line, says))
    });
    wrong.collect()
}

// `////` is a ruler and no doc comment, as for rustdoc.
fn doc_line(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    if line.starts_with("////") {
        return None;
    }
    let marker = ["///", "//!"].into_iter().find(|marker| line.starts_with(marker))?;
    Some((marker, line[marker.len()..].trim()))
}

fn bare(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase()
}

fn is_relative(word: &str) -> bool {
    BARE_RELATIVES.contains(&word)
}
