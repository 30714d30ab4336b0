//! Names of types and tests: one type for one name within a crate, and a claim that fits on a line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proc_macro2::Span;
use syn::visit::{self, Visit};

use super::TextFile;
use crate::layers::Violation;

/// The most characters that the name of a test may have. Its doc comment has the rest.
pub const TEST_NAME_MAX: usize = 70;

/// A struct, enum, trait, union or type alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The name of the type.
    pub name: String,
    /// The file, relative to the root of the workspace.
    pub file: PathBuf,
    /// The line of the name, from 1.
    pub line: usize,
}

/// One violation for each test whose name is longer than [`TEST_NAME_MAX`].
pub fn check_tests(file: &TextFile) -> Vec<Violation> {
    let names = read(file).tests.into_iter().filter(|(name, _)| name.len() > TEST_NAME_MAX);
    let says = |name: String| {
        format!("a test's name has at most {TEST_NAME_MAX} characters, and `{name}` has {}", name.len())
    };
    names.map(|(name, line)| Violation::at(&file.path, line, says(name))).collect()
}

/// One violation for each name that two types of a crate bear, at the second of them.
pub fn check_types<'a>(files: impl IntoIterator<Item = &'a TextFile>) -> Vec<Violation> {
    let mut first: BTreeMap<(String, String), Definition> = BTreeMap::new();
    let mut violations = Vec::new();
    for file in files {
        let Some(krate) = crate_of(file) else { continue };
        for definition in read(file).types {
            let key = (krate.clone(), definition.name.clone());
            match first.get(&key) {
                None => {
                    first.insert(key, definition);
                }
                Some(other) => {
                    let says = format!(
                        "the crate has another type `{}` ({}:{}); one name means one thing",
                        definition.name,
                        other.file.display(),
                        other.line
                    );
                    violations.push(Violation::at(&definition.file, definition.line, says));
                }
            }
        }
    }
    violations
}

/// The unit that is compiled as a whole: `src` of a package, or one of its integration tests, benches or examples.
///
/// Modules for tests count with the crate that they test. `None` for a file that cargo does not compile.
fn crate_of(file: &TextFile) -> Option<String> {
    let parts: Vec<&str> = file.path.iter().filter_map(|part| part.to_str()).collect();
    if parts.contains(&"fixtures") {
        return None;
    }
    let kind = parts.iter().rposition(|part| ["src", "tests", "benches", "examples"].contains(part))?;
    // `tests/src/…` is the crate `tests`; `tests/tests/link/…` is the test program `link`.
    let kind = parts.iter().take(kind).position(|part| *part == "src").unwrap_or(kind);
    if parts[kind] == "src" {
        let binary = parts.get(kind + 1) == Some(&"bin");
        let end = if binary { parts.len() } else { kind + 1 };
        return Some(parts[..end].join("/"));
    }
    let kind = parts.iter().skip(1).position(|part| ["tests", "examples"].contains(part))? + 1;
    let program = parts.get(kind + 1)?.trim_end_matches(".rs");
    Some(format!("{}/{program}", parts[..=kind].join("/")))
}

struct Names {
    types: Vec<Definition>,
    tests: Vec<(String, usize)>,
    file: PathBuf,
}

// A file that is no Rust has no names; the compiler says more of it than this would.
fn read(file: &TextFile) -> Names {
    let mut names = Names { types: Vec::new(), tests: Vec::new(), file: file.path.clone() };
    if let Ok(parsed) = syn::parse_file(&file.text) {
        names.visit_file(&parsed);
    }
    names
}

impl Names {
    fn add(&mut self, name: &syn::Ident) {
        self.types.push(Definition {
            name: name.to_string(),
            file: self.file.clone(),
            line: line(name.span()),
        });
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(&item.ident);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.add(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add(&item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add(&item.ident);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let is_test = item
            .attrs
            .iter()
            .any(|attribute| attribute.path().segments.last().is_some_and(|segment| segment.ident == "test"));
        if is_test {
            self.tests.push((item.sig.ident.to_string(), line(item.sig.ident.span())));
        }
        // Types within a function are nobody else's.
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        visit::visit_item_mod(self, item);
    }

    fn visit_item_impl(&mut self, _: &'ast syn::ItemImpl) {}
}

fn line(span: Span) -> usize {
    span.start().line
}
