//! Finds paths and strings in the tokens of macros and attributes, for which there is no parser.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{LitStr, Path};

/// The paths and strings of a token stream.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) paths: Vec<FoundPath>,
    pub(super) strings: Vec<(usize, String)>,
}

/// Names joined by `::`; a group after the last `::` is written out.
#[derive(Debug)]
pub(super) struct FoundPath {
    pub(super) line: usize,
    pub(super) segments: Vec<String>,
    pub(super) glob: bool,
}

/// Finds every `name::name…` and every string, at any depth.
pub(super) fn scan(stream: &TokenStream) -> Found {
    let mut found = Found::default();
    scan_into(stream, &[], &mut found);
    found
}

/// Returns true if a `cfg` with these words holds in tests only: `test`, or `all(…)` with such a part.
pub(super) fn requires_test(stream: &TokenStream) -> bool {
    let trees: Vec<TokenTree> = stream.clone().into_iter().collect();
    match trees.as_slice() {
        [TokenTree::Ident(name)] => name == "test",
        [TokenTree::Ident(name), TokenTree::Group(group)] if name == "all" => {
            let parts: Vec<TokenTree> = group.stream().into_iter().collect();
            parts
                .split(|part| matches!(part, TokenTree::Punct(comma) if comma.as_char() == ','))
                .any(|part| requires_test(&part.iter().cloned().collect()))
        }
        _ => false,
    }
}

// `prefix` is what stood before a brace group: in `crate::{a, b::c}` the insides are continued from `crate`.
fn scan_into(stream: &TokenStream, prefix: &[String], found: &mut Found) {
    let trees: Vec<TokenTree> = stream.clone().into_iter().collect();
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        match tree {
            TokenTree::Ident(_) => at = path(&trees, at, prefix, found),
            TokenTree::Group(group) => {
                scan_into(&group.stream(), &[], found);
                at += 1;
            }
            TokenTree::Literal(literal) => {
                let line = literal.span().start().line;
                if let Ok(text) = syn::parse_str::<LitStr>(&literal.to_string()) {
                    string(line, text.value(), found);
                }
                at += 1;
            }
            TokenTree::Punct(_) => at += 1,
        }
    }
}

fn path(trees: &[TokenTree], start: usize, prefix: &[String], found: &mut Found) -> usize {
    let mut segments = prefix.to_vec();
    let mut line = 0;
    let mut at = start;
    loop {
        match trees.get(at) {
            Some(TokenTree::Ident(name)) => {
                line = name.span().start().line;
                segments.push(name.to_string());
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace && at > start => {
                scan_into(&group.stream(), &segments, found);
                return at + 1;
            }
            Some(TokenTree::Punct(star)) if star.as_char() == '*' && at > start => {
                found.paths.push(FoundPath { line, segments, glob: true });
                return at + 1;
            }
            _ => break,
        }
        at += 1;
        if !(is_colon(trees.get(at)) && is_colon(trees.get(at + 1))) {
            break;
        }
        at += 2;
    }
    if segments.len() > 1 {
        found.paths.push(FoundPath { line, segments, glob: false });
    }
    at.max(start + 1)
}

// serde and clap take paths in strings: `#[serde(with = "crate::module::codec")]`.
fn string(line: usize, text: String, found: &mut Found) {
    if text.contains("::")
        && let Ok(path) = syn::parse_str::<Path>(&text)
    {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        found.paths.push(FoundPath { line, segments, glob: false });
    }
    found.strings.push((line, text));
}

fn is_colon(tree: Option<&TokenTree>) -> bool {
    matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == ':')
}
