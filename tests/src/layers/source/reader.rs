//! Walks one parsed file, and collects paths and strings outside of code that is compiled for tests only.

use proc_macro2::{LineColumn, Span, TokenStream};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, UseTree};

use super::super::tokens;
use super::{Mention, Source};

/// Gathers into a source what it says; `module` is where the walk is.
pub(super) struct Reader<'a> {
    pub(super) source: &'a mut Source,
    pub(super) module: Vec<String>,
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

/// Returns true if `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, …))]` stands above something.
pub(super) fn for_tests(attributes: &[Attribute]) -> bool {
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

pub(super) fn line(span: Span) -> usize {
    let LineColumn { line, .. } = span.start();
    line
}
