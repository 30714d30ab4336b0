//! Figures about the language of a checkout, to compare one state of the project with another.

use std::fmt;
use std::path::Path;

use super::{TextFile, comments, names, retired, sentences};
use crate::layers::Violation;

/// The figures that `make language` prints.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Doc comments of all crates.
    pub comments: usize,
    /// The median number of words in the first paragraph of a doc comment.
    pub comment_words: usize,
    /// Doc comments of fewer than [`comments::WORDS_MIN`] words.
    pub short_comments: usize,
    /// Doc comments that open with a bare relative.
    pub relative_comments: usize,
    /// The median number of words in a sentence of README.md.
    pub readme_words: usize,
    /// The median number of words in a sentence below `docs/`.
    pub docs_words: usize,
    /// Sentences of README.md and `docs/` of more than [`sentences::WORDS_MAX`] words.
    pub long_sentences: usize,
    /// Types that bear the name of another one of their crate.
    pub types_twice: usize,
    /// Tests whose names are longer than [`names::TEST_NAME_MAX`].
    pub long_test_names: usize,
    /// Number of uses of retired words.
    pub retired_words: usize,
}

/// Reads the figures of a checkout.
///
/// # Errors
/// A folder that cannot be listed.
pub fn of(root: &Path) -> Result<Figures, Violation> {
    let files = super::files(root)?;
    let rust: Vec<&TextFile> = files.iter().filter(|file| is_compiled(file)).collect();
    let comments: Vec<_> = rust.iter().flat_map(|file| comments::of_file(&file.path, &file.text)).collect();
    let readme = sentences_of(&files, |path| path == Path::new("README.md"));
    let docs = sentences_of(&files, |path| path.starts_with("docs"));
    let long = |found: &[sentences::Sentence]| {
        found.iter().filter(|sentence| sentence.words() > sentences::WORDS_MAX).count()
    };
    Ok(Figures {
        comments: comments.len(),
        comment_words: median(comments.iter().map(comments::Comment::words)),
        short_comments: comments.iter().filter(|comment| comment.is_short()).count(),
        relative_comments: comments.iter().filter(|comment| comment.opens_with_a_relative()).count(),
        readme_words: median(readme.iter().map(sentences::Sentence::words)),
        docs_words: median(docs.iter().map(sentences::Sentence::words)),
        long_sentences: long(&readme) + long(&docs),
        types_twice: names::check_types(rust.iter().copied()).len(),
        long_test_names: rust.iter().map(|file| names::check_tests(file).len()).sum(),
        retired_words: files.iter().map(|file| retired::check(file).len()).sum(),
    })
}

/// Returns true if cargo compiles the file: Rust, and no fixture of a test.
pub fn is_compiled(file: &TextFile) -> bool {
    file.has_extension("rs") && !file.path.iter().any(|part| part == "fixtures")
}

/// The sentences of the Markdown files whose paths are wanted.
pub fn sentences_of(files: &[TextFile], wanted: impl Fn(&Path) -> bool) -> Vec<sentences::Sentence> {
    let pages = files.iter().filter(|file| file.has_extension("md") && wanted(&file.path));
    pages.flat_map(sentences::of_file).collect()
}

fn median(values: impl Iterator<Item = usize>) -> usize {
    let mut values: Vec<usize> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: usize| format!("{:.1} %", 100.0 * part as f64 / self.comments.max(1) as f64);
        writeln!(f, "doc comments                               {}", self.comments)?;
        writeln!(f, "  words in the first paragraph, median     {}", self.comment_words)?;
        writeln!(
            f,
            "  fewer than {} words                       {} ({})",
            comments::WORDS_MIN,
            self.short_comments,
            share(self.short_comments)
        )?;
        writeln!(
            f,
            "  opening with a bare relative             {} ({})",
            self.relative_comments,
            share(self.relative_comments)
        )?;
        writeln!(f, "words in a sentence, median: README.md     {}", self.readme_words)?;
        writeln!(f, "                             docs/         {}", self.docs_words)?;
        writeln!(
            f,
            "sentences of more than {} words            {}",
            sentences::WORDS_MAX,
            self.long_sentences
        )?;
        writeln!(f, "type names twice in a crate                {}", self.types_twice)?;
        writeln!(
            f,
            "test names of more than {} characters      {}",
            names::TEST_NAME_MAX,
            self.long_test_names
        )?;
        write!(f, "uses of retired words                      {}", self.retired_words)
    }
}
