//! Prints figures about the language of a checkout, and what breaks a rule.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tests::language::{self, comments, figures, names, retired, sentences};
use tests::layers::workspace;

/// Prints how long doc comments and sentences are, how many break a rule of CONTRIBUTING.md, and on request which.
#[derive(Debug, Parser)]
#[command(
    name = "tombolo-language",
    after_help = "Compare two states of the project:\n  git worktree add ../before COMMIT\n  make language LANGUAGE_FLAGS=\"--root ../before\"; make language"
)]
struct Arguments {
    /// The checkout to read, instead of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// List each breach of a rule and each long sentence, with its line
    #[arg(long)]
    list: bool,
    /// With --list: only paths that begin so
    #[arg(long, value_name = "PATH", default_value = "")]
    path: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let root = arguments.root.unwrap_or_else(workspace);
    match (figures::of(&root), language::files(&root)) {
        (Ok(figures), Ok(files)) => {
            if arguments.list {
                list(&files, &arguments.path);
            }
            println!("{figures}");
            ExitCode::SUCCESS
        }
        (Err(violation), _) | (_, Err(violation)) => {
            eprintln!("error: {violation}");
            ExitCode::FAILURE
        }
    }
}

fn list(files: &[language::TextFile], path: &PathBuf) {
    let sources: Vec<_> = files.iter().filter(|file| figures::is_compiled(file)).collect();
    let mut violations = names::check_types(sources.iter().copied());
    for file in &sources {
        violations.extend(comments::check(file));
        violations.extend(names::check_tests(file));
    }
    violations.extend(files.iter().flat_map(retired::check));
    violations.sort();
    for violation in violations.iter().filter(|violation| violation.file.starts_with(path)) {
        println!("{violation}");
    }
    let documents = figures::sentences_of(files, |it| {
        (it.starts_with("docs") || it.as_os_str() == "README.md") && it.starts_with(path)
    });
    for sentence in documents.iter().filter(|sentence| sentence.words() > sentences::WORDS_MAX) {
        println!(
            "{}:{}: a sentence of {} words: {}",
            sentence.file.display(),
            sentence.line,
            sentence.words(),
            sentence.text
        );
    }
}
