//! What a Rust source says: every path that it names, wherever the path stands, and every string.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{LineColumn, Span, TokenStream};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, UseTree};

use super::{Violation, tokens};

/// The sources of one crate, without what is compiled for tests only.
#[derive(Debug)]
pub struct Crate {
    /// How its modules call the crate, if they are in its `main.rs`.
    pub name: String,
    /// In the order of their modules.
    pub files: Vec<Source>,
}

/// One file.
#[derive(Debug)]
pub struct Source {
    /// Relative to the root of the workspace.
    pub file: PathBuf,
    /// Its module path within the crate, by its location; empty for `lib.rs` and `main.rs`.
    pub module: Vec<String>,
    /// Whether it is the root of a binary, which calls the library by its name.
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
    /// The line, from 1.
    pub line: usize,
    /// The module in which it stands: that of the file, and those written in line.
    pub module: Vec<String>,
    /// Its segments; those of a `use` are written out one by one.
    pub segments: Vec<String>,
    /// Whether `::*` follows.
    pub glob: bool,
    /// Whether it stands in a `use`.
    pub imported: bool,
    /// The name that a `use` gives to it.
    pub alias: Option<String>,
}

impl Crate {
    /// Reads every `.rs` under `root/folder/src`; what cannot be read or parsed is a violation.
    pub fn read(root: &Path, folder: &str) -> Result<Self, Violation> {
        let name = folder.replace('-', "_");
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

    /// Where a path leads within the crate; `None` for a path to elsewhere or to a name of its own module.
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

struct Reader<'a> {
    source: &'a mut Source,
    module: Vec<String>,
}

impl Reader<'_> {
    fn mention(&mut self, line: usize, segments: Vec<String>, glob: bool) {
        self.push(line, segments, glob, false, None);
    }

    fn push(
        &mut self,
        line: usize,
        segments: Vec<String>,
        glob: bool,
        imported: bool,
        alias: Option<String>,
    ) {
        let module = self.module.clone();
        self.source.mentions.push(Mention { line, module, segments, glob, imported, alias });
    }

    fn tokens(&mut self, stream: &TokenStream) {
        let found = tokens::scan(stream);
        for path in found.paths {
            self.mention(path.line, path.segments, path.glob);
        }
        self.source.strings.extend(found.strings);
    }

    fn use_tree(&mut self, prefix: &[String], tree: &UseTree) {
        let join = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.use_tree(&join(&path.ident), &path.tree),
            UseTree::Name(name) => {
                self.push(line(name.ident.span()), join(&name.ident), false, true, None);
            }
            UseTree::Rename(rename) => {
                let alias = Some(rename.rename.to_string());
                self.push(line(rename.ident.span()), join(&rename.ident), false, true, alias);
            }
            UseTree::Glob(glob) => {
                self.push(line(glob.star_token.spans[0]), prefix.to_vec(), true, true, None);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.use_tree(prefix, tree)),
        }
    }

    fn inner_module(&self, name: &syn::Ident) -> Vec<String> {
        [self.module.as_slice(), &[name.to_string()]].concat()
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if for_tests(attributes(item)) {
            if let Item::Mod(module) = item {
                let path = self.inner_module(&module.ident);
                self.source.test_modules.push(path);
            }
            return;
        }
        match item {
            Item::Verbatim(stream) => self.tokens(stream),
            Item::ExternCrate(item) if item.ident == "self" => {
                self.source.disguises.push(line(item.ident.span()));
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let inner = self.inner_module(&item.ident);
        let outer = std::mem::replace(&mut self.module, inner);
        visit::visit_item_mod(self, item);
        self.module = outer;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // `use ::name` is another crate by definition.
        if item.leading_colon.is_none() {
            self.use_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let (None, Some(first)) = (&path.leading_colon, path.segments.first()) {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.mention(line(first.ident.span()), segments, false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.tokens(&called.tokens);
        visit::visit_macro(self, called);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("doc") {
            return; // Words for people may point anywhere.
        }
        if attribute.path().is_ident("path") {
            self.source.disguises.push(line(attribute.pound_token.spans[0]));
        }
        if let Meta::List(list) = &attribute.meta {
            self.tokens(&list.tokens);
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.source.strings.push((line(literal.span()), literal.value()));
    }

    // Who may see something is not whom it sees.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_expr(&mut self, expression: &'ast syn::Expr) {
        match expression {
            syn::Expr::Verbatim(stream) => self.tokens(stream),
            _ => visit::visit_expr(self, expression),
        }
    }

    fn visit_type(&mut self, named: &'ast syn::Type) {
        match named {
            syn::Type::Verbatim(stream) => self.tokens(stream),
            _ => visit::visit_type(self, named),
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            syn::ImplItem::Macro(item) => &item.attrs,
            syn::ImplItem::Verbatim(stream) => return self.tokens(stream),
            _ => return visit::visit_impl_item(self, item),
        };
        if !for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !for_tests(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !for_tests(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !for_tests(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }
}

/// Whether `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, …))]` stands above something.
fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => tokens::requires_test(&list.tokens),
        Meta::List(_) | Meta::NameValue(_) => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
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

fn line(span: Span) -> usize {
    let LineColumn { line, .. } = span.start();
    line
}
