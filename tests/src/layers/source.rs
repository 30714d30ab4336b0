//! Reads a Rust source: every path that it names, wherever the path stands, and every string.

mod reader;

use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

use super::Violation;
use reader::{Reader, for_tests, line};

/// The sources of one crate, without what is compiled for tests only.
#[derive(Debug)]
pub struct Crate {
    /// The crate's name in the paths of its `main.rs`.
    pub name: String,
    /// In the order of their modules.
    pub files: Vec<Source>,
}

/// One file of a crate, parsed.
#[derive(Debug)]
pub struct Source {
    /// Relative to the root of the workspace.
    pub file: PathBuf,
    /// Its module path within the crate, by its location; empty for `lib.rs` and `main.rs`.
    pub module: Vec<String>,
    /// True if the file is the root of a binary, which calls the library by its name.
    pub binary: bool,
    /// Every path with its place.
    pub mentions: Vec<Mention>,
    /// Every string literal with its line.
    pub strings: Vec<(usize, String)>,
    /// The modules that it declares for tests only, as paths within the crate.
    test_modules: Vec<Vec<String>>,
    /// The lines of `#[path]` and `extern crate self`, which would make names lie.
    pub disguises: Vec<usize>,
}

/// A path as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// The line of the path, from 1.
    pub line: usize,
    /// The module in which it stands: that of the file, and those written in line.
    pub module: Vec<String>,
    /// Its segments; those of a `use` are written out one by one.
    pub segments: Vec<String>,
    /// True if `::*` follows the path.
    pub glob: bool,
    /// True if the path stands in a `use`.
    pub imported: bool,
    /// The name that a `use` gives to it.
    pub alias: Option<String>,
}

impl Crate {
    /// Reads every `.rs` under `root/folder/src`; what cannot be read or parsed is a violation.
    pub fn read(root: &Path, folder: &str) -> Result<Self, Violation> {
        let name = folder.rsplit('/').next().unwrap_or(folder).replace('-', "_");
        let src = Path::new(folder).join("src");
        let mut files = Vec::new();
        for file in rust_files(root, &src)? {
            let text = read(root, &file)?;
            let within = file.strip_prefix(&src).unwrap_or(&file);
            files.push(Source::parse(&file, module_of(within), is_binary(within), &text)?);
        }
        let test_modules: Vec<_> = files.iter().flat_map(|source| source.test_modules.clone()).collect();
        files.retain(|source| !test_modules.iter().any(|module| source.module.starts_with(module)));
        files.sort_by(|a, b| a.module.cmp(&b.module));
        Ok(Self { name, files })
    }

    /// Resolves a path within the crate. `None` for a path into another crate and for a name of the path's
    /// own module.
    pub fn resolve(&self, mention: &Mention) -> Option<Vec<String>> {
        let mut segments = mention.segments.iter();
        let first = segments.next()?;
        let mut target = match first.as_str() {
            "self" => mention.module.clone(),
            "super" => parent(&mention.module),
            "crate" => Vec::new(),
            own if *own == self.name => Vec::new(),
            _ => return None,
        };
        for segment in segments {
            match segment.as_str() {
                "super" => target = parent(&target),
                "self" => {}
                _ => target.push(segment.clone()),
            }
        }
        Some(target)
    }
}

impl Source {
    fn parse(file: &Path, module: Vec<String>, binary: bool, text: &str) -> Result<Self, Violation> {
        let parsed = syn::parse_file(text).map_err(|error| {
            Violation::at(file, line(error.span()), format!("this is not Rust as syn knows it: {error}"))
        })?;
        let mut source = Self {
            file: file.to_owned(),
            module,
            binary,
            mentions: Vec::new(),
            strings: Vec::new(),
            test_modules: Vec::new(),
            disguises: Vec::new(),
        };
        if for_tests(&parsed.attrs) {
            source.test_modules.push(source.module.clone());
        } else {
            let module = source.module.clone();
            Reader { source: &mut source, module }.visit_file(&parsed);
        }
        Ok(source)
    }
}

/// Every `.rs` below a folder of the workspace, in order, relative to the workspace.
pub fn rust_files(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, Violation> {
    let cannot = |error| Violation::of(folder, format!("cannot be read: {error}"));
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(folder)).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            files.extend(rust_files(root, &path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The text of a file of the workspace.
pub fn read(root: &Path, file: &Path) -> Result<String, Violation> {
    fs::read_to_string(root.join(file))
        .map_err(|error| Violation::of(file, format!("cannot be read: {error}")))
}

fn module_of(within: &Path) -> Vec<String> {
    let path = within.with_extension("");
    let names: Vec<String> =
        path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["lib" | "main"] | ["bin", _] | ["bin", _, "main"] => Vec::new(),
        _ => names,
    }
}

fn is_binary(within: &Path) -> bool {
    within.starts_with("bin") || within == Path::new("main.rs")
}

fn parent(module: &[String]) -> Vec<String> {
    module.split_last().map(|(_, rest)| rest.to_vec()).unwrap_or_default()
}
