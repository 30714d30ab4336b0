//! The commands of `tombolo` in README.md and docs/, parsed by its own parser.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// Opens and closes a block of code, and the first fence of a block of commands.
const FENCE: &str = "```";
const CONSOLE: &str = "```console";

#[test]
fn every_tombolo_command_of_the_pages_parses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut pages = vec![root.join("README.md")];
    add_pages(&root.join("docs"), &mut pages);
    let mut count = 0;
    for page in pages {
        for words in commands(&fs::read_to_string(&page).unwrap()) {
            let parsed = command(Program::Tombolo).try_get_matches_from(&words);
            let parsed = parsed.and_then(|matches| CommandLine::from_arg_matches(&matches));
            if let Err(error) = parsed {
                panic!("{}: {words:?}: {error}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

#[test]
fn commands_are_found_behind_a_pipe_and_in_a_pod() {
    let text = "$ tombolo no block\n```console\n$ (tombolo a 'b c' \\\n    --d \"e f\") | x\noutput\n\
                $ kubectl exec deploy/s -- tombolo g > h\n$ x | tombolo i\n```\n$ tombolo no block\n";
    assert_eq!(
        commands(text),
        [vec!["tombolo", "a", "b c", "--d", "e f"], vec!["tombolo", "g"], vec!["tombolo", "i"]]
    );
}

fn add_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            add_pages(&path, pages);
        } else if path.extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
    }
}

/// The words of each command of `tombolo` in the blocks of commands of a page.
fn commands(page: &str) -> Vec<Vec<String>> {
    let joined = page.replace("\\\n", " ");
    let mut is_console = false;
    let mut commands = Vec::new();
    for line in joined.lines().map(str::trim) {
        if line.starts_with(FENCE) {
            is_console = line == CONSOLE;
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_console) {
            for words in simple_commands(command) {
                let begin = words.iter().position(|word| word == "tombolo");
                let is_own = begin.is_some_and(|at| at == 0 || words[at - 1] == "--");
                if let Some(begin) = begin.filter(|_| is_own) {
                    commands.push(words[begin..].to_vec());
                }
            }
        }
    }
    commands
}

/// The words of each simple command of a line for a shell. Substitutions in quotes stay text.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut quote) = (vec![vec![String::new()]], None);
    for character in line.chars() {
        let words = commands.last_mut().expect("never empty");
        let word = words.last_mut().expect("never empty");
        match (character, quote) {
            (mark, Some(open)) if mark == open => quote = None,
            (text, Some(_)) => word.push(text),
            (mark @ ('\'' | '"'), None) => quote = Some(mark),
            (' ', None) => words.push(String::new()),
            ('|' | ';' | '&' | '<' | '>' | '(' | ')', None) => commands.push(vec![String::new()]),
            (text, None) => word.push(text),
        }
    }
    for words in &mut commands {
        words.retain(|word| !word.is_empty());
    }
    commands
}
