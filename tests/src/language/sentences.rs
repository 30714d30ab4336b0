//! Sentences of Markdown documents, and the number of words in each.

use std::path::PathBuf;

use super::TextFile;

/// A longer sentence is listed. Most readers of these pages read English as a second language.
pub const WORDS_MAX: usize = 40;

/// A sentence of prose, with its place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// The file, relative to the root of the workspace.
    pub file: PathBuf,
    /// The line on which the paragraph begins, from 1.
    pub line: usize,
    /// The text without its end mark.
    pub text: String,
}

impl Sentence {
    /// Counts the words of the sentence.
    pub fn words(&self) -> usize {
        self.text.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
    }
}

/// Every sentence of a Markdown file outside of code blocks and headings.
///
/// A cell of a table counts as a paragraph if it holds a sentence that ends.
pub fn of_file(file: &TextFile) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut paragraph: Option<(usize, String)> = None;
    let mut code = false;
    for (index, line) in file.text.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            code = !code;
            close(file, &mut paragraph, &mut sentences);
            continue;
        }
        if code {
            continue;
        }
        if trimmed.is_empty() || trimmed.starts_with('#') || trimmed.starts_with("<!--") {
            close(file, &mut paragraph, &mut sentences);
            continue;
        }
        if trimmed.starts_with('|') {
            close(file, &mut paragraph, &mut sentences);
            let cells = trimmed.trim_matches('|').split(" | ");
            for cell in cells.filter(|cell| cell.split_whitespace().any(ends_a_sentence)) {
                close(file, &mut Some((index + 1, cell.to_owned())), &mut sentences);
            }
            continue;
        }
        if begins_an_item(trimmed) {
            close(file, &mut paragraph, &mut sentences);
        }
        let (_, text) = paragraph.get_or_insert_with(|| (index + 1, String::new()));
        text.push(' ');
        text.push_str(trimmed);
    }
    close(file, &mut paragraph, &mut sentences);
    sentences
}

fn close(file: &TextFile, paragraph: &mut Option<(usize, String)>, sentences: &mut Vec<Sentence>) {
    let Some((line, text)) = paragraph.take() else { return };
    let mut sentence = String::new();
    for word in text.split_whitespace() {
        sentence.push(' ');
        sentence.push_str(word);
        if ends_a_sentence(word) {
            push(file, line, &mut sentence, sentences);
        }
    }
    push(file, line, &mut sentence, sentences);
}

fn push(file: &TextFile, line: usize, text: &mut String, sentences: &mut Vec<Sentence>) {
    let text = std::mem::take(text);
    let sentence = Sentence { file: file.path.clone(), line, text: text.trim().to_owned() };
    if sentence.words() > 1 {
        sentences.push(sentence);
    }
}

// A full stop within a word, as in `v1.36`, ends nothing; behind closing marks it does.
fn ends_a_sentence(word: &str) -> bool {
    let abbreviation = ["e.g.", "i.e.", "etc.", "vs.", "cf.", "no."].contains(&word);
    let core = word.trim_end_matches(['*', '_', '`', ')', '"', '\'', ']']);
    !abbreviation && core.ends_with(['.', '!', '?'])
}

fn begins_an_item(line: &str) -> bool {
    let bullet = ["* ", "- ", "+ "].iter().any(|mark| line.starts_with(mark));
    let digits = line.chars().take_while(char::is_ascii_digit).count();
    bullet || (digits > 0 && line[digits..].starts_with(". "))
}
