//! Secrets that were planted, in every form in which they could be recognized.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use tests::binaries::binary;
use tests::caller::SOON;
use tests::process::{Invocation, run};

/// Lines of a PEM file that are shorter are its ends, or too little to be known again.
const KEY_LINE_CHARS: usize = 40;

/// The most of a line that a failure quotes.
const QUOTED_CHARS: usize = 600;

/// The secrets: the place of each, and its forms.
#[derive(Default)]
pub(super) struct Planted(Vec<(String, BTreeSet<String>)>);

/// The output of a program on stdout and stderr.
pub(super) struct ProgramOutput {
    pub(super) code: Option<i32>,
    pub(super) text: String,
}

impl Planted {
    /// A secret for this place alone, which identifies the place of a leak.
    pub(super) fn canary(&mut self, place: &str) -> String {
        self.know(place, format!("canary-{place}-5ecre7"))
    }

    /// Registers a secret that exists already.
    pub(super) fn know(&mut self, place: &str, secret: impl Into<String>) -> String {
        let secret = secret.into();
        assert!(secret.len() >= 16, "{place}: {secret} may stand anywhere");
        self.0.push((place.to_owned(), forms(&secret)));
        secret
    }

    /// A private key, of which each line is one.
    pub(super) fn know_key(&mut self, place: &str, pem: &str) {
        let lines: Vec<&str> =
            pem.lines().filter(|line| line.len() >= KEY_LINE_CHARS && !line.starts_with('-')).collect();
        assert!(!lines.is_empty(), "{place} is no key");
        lines.into_iter().for_each(|line| drop(self.know(place, line)));
    }

    /// # Panics
    /// If the text contains one.
    pub(super) fn has_none(&self, what: &str, text: &str) {
        for (place, forms) in &self.0 {
            let has_one = |line: &&str| forms.iter().any(|form| line.contains(form.as_str()));
            let found =
                text.lines().find(has_one).map(|line| line.chars().take(QUOTED_CHARS).collect::<String>());
            assert!(found.is_none(), "{what} has the secret of {place}: {found:?}");
        }
    }

    /// Runs a program in this folder with these variables. Its output must not be empty, and must contain no
    /// secret.
    pub(super) async fn output_of(
        &self,
        folder: &Path,
        program: &str,
        words: &[&str],
        variables: &[(String, String)],
    ) -> ProgramOutput {
        let invocation =
            Invocation::of(binary(program)).arguments(words.iter().copied()).in_directory(folder);
        let invocation = variables
            .iter()
            .fold(invocation, |invocation, (name, value)| invocation.variable(name, value.as_str()));
        let output =
            run(&invocation, SOON).await.unwrap_or_else(|error| panic!("{program} {words:?}: {error}"));
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!text.trim().is_empty(), "{program} {words:?} says nothing");
        self.has_none(&format!("{program} {words:?}"), &text);
        ProgramOutput { code: output.status.code(), text }
    }
}

/// As it is, in base64 at any position of a text, as in a JWT or a Basic credential, and in `Debug`'s format
/// of bytes.
fn forms(secret: &str) -> BTreeSet<String> {
    let decimal: Vec<String> = secret.bytes().map(|byte| byte.to_string()).collect();
    let encoded = [URL_SAFE_NO_PAD, STANDARD_NO_PAD].into_iter().flat_map(|engine| {
        (0..3).map(move |before| {
            let text = engine.encode([vec![0; before].as_slice(), secret.as_bytes()].concat());
            // The letters at both ends have bits of what is around it.
            text[(before * 8).div_ceil(6)..text.len() - 1].to_owned()
        })
    });
    [secret.to_owned(), decimal.join(", ")].into_iter().chain(encoded).collect()
}

#[test]
fn a_canary_is_found_in_every_form_and_nothing_else_is() {
    let mut planted = Planted::default();
    let secret = planted.canary("form");
    let found = |text: &str| std::panic::catch_unwind(|| planted.has_none("a text", text)).is_err();
    for before in ["", "a", "ab", "abc"] {
        let text = format!("{before}{secret}!");
        assert!(
            found(&text) && found(&URL_SAFE_NO_PAD.encode(&text)) && found(&STANDARD_NO_PAD.encode(&text)),
            "{text}"
        );
        assert!(found(&format!("{:?}", text.as_bytes())), "{text}");
    }
    assert!(!found("canary-5ecre7 canary-forms-5ecre7"));
}
