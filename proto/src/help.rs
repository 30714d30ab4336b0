//! The page that explains refusals and checks, and how messages refer to it.

use std::fmt::{self, Write as _};

/// The page with a heading for each cause of a refusal and for each check of `tombolo doctor`. The documentation has no address
/// of its own yet, so this is a path in the repository.
pub const TROUBLESHOOTING: &str = "docs/operate/troubleshooting.md";

/// The first words of `details.causes[].message` in a `Status` that the gateway has made. An API server's own has none.
pub const BY_THE_GATEWAY: &str = "tombolo gateway";

/// A heading of [`TROUBLESHOOTING`], shown as `docs/operate/troubleshooting.md#notrecorded`.
#[derive(Debug, Clone, Copy)]
pub struct Reference<'a>(pub &'a str);

/// The anchor of a heading of one word: the word in lower case, as renderers of Markdown make it.
#[derive(Debug, Clone, Copy)]
pub struct Anchor<'a>(pub &'a str);

impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TROUBLESHOOTING}{}", Anchor(self.0))
    }
}

impl fmt::Display for Anchor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('#')?;
        self.0.chars().try_for_each(|letter| f.write_char(letter.to_ascii_lowercase()))
    }
}
