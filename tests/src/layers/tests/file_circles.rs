//! Circles of files are found, and uses of modules above a file are none.

use super::super::file_circles::check;
use super::{Workspace, lines};

#[test]
fn files_that_use_their_parents_form_no_circle() {
    assert_eq!(lines(&check(&Workspace::clean().read())), [""; 0]);
}

#[test]
fn two_siblings_that_use_each_other_are_a_circle() {
    let workspace = siblings("use super::b::B; pub struct A(B);", "use super::a::A; pub struct B(Box<A>);");

    assert_eq!(
        lines(&check(&workspace.read())),
        ["sample/src/registry/a.rs:2: these files use each other in a circle: registry::a uses registry::b \
          (sample/src/registry/a.rs:2), registry::b uses registry::a (sample/src/registry/b.rs:2)"]
    );
}

#[test]
fn a_use_by_way_of_an_imported_module_counts() {
    let workspace = siblings("use super::b; pub fn a() { b::b() }", "pub fn b() { crate::registry::a::a() }");

    assert_eq!(check(&workspace.read()).len(), 1);
}

#[test]
fn a_re_export_counts_as_the_file_that_defines_the_item() {
    let parent = "mod a; mod b; pub use a::A; use b::B;";
    let workspace = Workspace::clean()
        .with("registry.rs", parent)
        .with("registry/a.rs", "use super::b::B; pub struct A(B);")
        .with("registry/b.rs", "pub struct B(Box<super::A>);");

    assert_eq!(check(&workspace.read()).len(), 1);
}

#[test]
fn a_child_and_a_module_beside_its_parent_can_be_a_circle() {
    let workspace = Workspace::clean()
        .with("registry/slot.rs", "pub struct Slot(crate::agents::Agent);")
        .with("agents.rs", "pub struct Agent(Vec<crate::registry::slot::Slot>);");

    assert_eq!(check(&workspace.read()).len(), 1);
}

#[test]
fn uses_in_one_direction_form_no_circle() {
    let workspace = siblings("pub struct A;", "use super::a::A; pub struct B(A);");

    assert_eq!(lines(&check(&workspace.read())), [""; 0]);
}

fn siblings(a: &str, b: &str) -> Workspace {
    Workspace::clean().with("registry.rs", "mod a; mod b;").with("registry/a.rs", a).with("registry/b.rs", b)
}
