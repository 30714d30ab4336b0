//! Retired words: private words of the past, and the field's word for each. The list stands here and nowhere else.

use std::path::Path;

use super::TextFile;
use crate::layers::Violation;

/// A private word and the word to write in its place.
#[derive(Debug, Clone, Copy)]
pub struct Retired {
    /// The forms of the word, in lower case. A space matches a space, `_`, `-` or a change of case.
    pub forms: &'static [&'static str],
    /// The word of the field.
    pub instead: &'static str,
}

/// Words that identifiers, comments, messages and documents must not use, in any case.
pub const RETIRED: &[Retired] = &[
    Retired { forms: &["door", "doors"], instead: "listener, or entry point" },
    Retired { forms: &["way in", "ways in"], instead: "entry point" },
    Retired { forms: &["stranger", "strangers"], instead: "unauthenticated client" },
    Retired { forms: &["set aside", "sets aside", "setting aside"], instead: "low priority" },
    Retired { forms: &["heard out", "hears out", "hear out", "hearing out"], instead: "drain" },
    Retired { forms: &["desk", "desks"], instead: "service" },
    Retired { forms: &["hall", "halls"], instead: "connection service" },
    Retired { forms: &["attendant", "attendants"], instead: "background task" },
    Retired { forms: &["knock", "knocks"], instead: "connection attempt" },
    Retired { forms: &["newcomer", "newcomers"], instead: "accepted connection, or new agent" },
    Retired { forms: &["roster", "rosters"], instead: "tunnel pool" },
    Retired { forms: &["census", "tally", "tallies"], instead: "gauge, or counter" },
    Retired { forms: &["lookout", "lookouts"], instead: "resolver" },
    Retired { forms: &["keeper", "keepers"], instead: "supervisor" },
    Retired { forms: &["equipment"], instead: "dependencies" },
    Retired { forms: &["whoever", "whomever"], instead: "the actor's name" },
    Retired { forms: &["put out", "puts out"], instead: "disconnect" },
    Retired { forms: &["wary"], instead: "CSRF check" },
    Retired { forms: &["poisoned rtt", "poisoned probe"], instead: "RTT repair" },
    Retired { forms: &["reception"], instead: "agents" },
];

/// Files in which a retired word may stand: the lists, their tests, and the page that says how words were renamed.
const EXEMPT: &[&str] = &[
    "tests/src/language/comments.rs",
    "tests/src/language/retired.rs",
    "tests/src/language/tests.rs",
    "CHANGELOG.md",
];

/// Old values of the configuration and the store. Products name them to refuse or to migrate them.
const OLD_VALUES: &[&str] = &["way-in", "prefer-newcomer", "refuse-newcomer"];

/// The folders of products in which [`OLD_VALUES`] may stand.
const NAME_OLD_VALUES: &[&str] = &["policy/src", "tunnel-server/src"];

/// Marks an example of how not to write.
const BAD_EXAMPLE: &str = "*Before:*";

/// One violation for each line of a file that uses a retired word.
pub fn check(file: &TextFile) -> Vec<Violation> {
    let is_list_of_hashes = file.has_extension("sum");
    if is_list_of_hashes || EXEMPT.iter().any(|exempt| file.path == Path::new(exempt)) {
        return Vec::new();
    }
    let names_old_values = NAME_OLD_VALUES.iter().any(|folder| file.path.starts_with(folder));
    let mut violations = Vec::new();
    for (index, line) in file.text.lines().enumerate().filter(|(_, line)| !line.contains(BAD_EXAMPLE)) {
        let mut line = line.to_owned();
        for old in OLD_VALUES.iter().filter(|_| names_old_values) {
            line = line.replace(old, "");
        }
        let words = words(&line);
        for retired in RETIRED {
            for form in retired.forms.iter().filter(|form| stands_in(form, &words)) {
                let says = format!("the retired word \"{form}\"; write: {}", retired.instead);
                violations.push(Violation::at(&file.path, index + 1, says));
            }
        }
    }
    violations
}

fn stands_in(form: &str, words: &[String]) -> bool {
    let wanted: Vec<&str> = form.split(' ').collect();
    words.windows(wanted.len()).any(|window| window.iter().zip(&wanted).all(|(word, want)| word == want))
}

/// The words of a line in lower case: `TunnelPool`, `tunnel_pool`, `tunnel-pool` and `tunnel pool` are two each.
pub fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    for c in line.chars() {
        let begins = !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase());
        if begins && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
