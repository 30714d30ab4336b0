//! Circles of modules are found, by every path that a crate's root offers.

use super::super::cycles::check;
use super::{Workspace, lines};

#[test]
fn modules_that_lean_one_way_form_no_circle() {
    assert_eq!(lines(&check(&Workspace::clean().read())), [""; 0]);
}

#[test]
fn two_modules_that_name_each_other_are_a_circle() {
    let workspace =
        Workspace::clean().with("identity.rs", "use crate::registry::Registry; #[cfg(test)] mod tests;");

    assert_eq!(
        lines(&check(&workspace.read())),
        ["sample/src/identity.rs:2: these modules lean on each other in a circle: identity names registry \
          (sample/src/identity.rs:2), registry names identity (sample/src/registry.rs:5)"]
    );
}

#[test]
fn a_circle_of_three_is_found_once_and_without_bystanders() {
    let workspace = Workspace::clean()
        .with("identity.rs", "use crate::agents::open; #[cfg(test)] mod tests;")
        .with("app.rs", "use crate::identity::Name;");

    let found = lines(&check(&workspace.read()));

    assert_eq!(found.len(), 1);
    assert!(found[0].contains("identity names agents"), "{found:?}");
    assert!(found[0].contains("agents names registry"), "{found:?}");
    assert!(found[0].contains("registry names identity"), "{found:?}");
    assert!(!found[0].contains("app"), "{found:?}");
}

#[test]
fn two_circles_are_two_even_if_one_leans_on_the_other() {
    let workspace = Workspace::clean()
        .with("identity.rs", "use crate::registry::Registry; #[cfg(test)] mod tests;")
        .with("agents.rs", "use crate::{registry::Registry, app};")
        .with("app.rs", "use crate::agents;");

    let found = lines(&check(&workspace.read()));

    assert_eq!(found.len(), 2);
    assert!(!found.iter().any(|line| line.contains("app names") && line.contains("identity")), "{found:?}");
}

#[test]
fn a_name_that_the_root_re_exports_leads_to_its_module() {
    let workspace = Workspace::clean().with("registry.rs", "use crate::Gateway;");

    let found = lines(&check(&workspace.read()));

    assert_eq!(found.len(), 1);
    assert!(found[0].contains("registry names gateway"), "{found:?}");
}

#[test]
fn a_renamed_re_export_leads_to_its_module() {
    let workspace = Workspace::clean()
        .with("lib.rs", "pub use self::gateway::{Gateway as Entry};")
        .with("registry.rs", "use crate::Entry;");

    assert_eq!(check(&workspace.read()).len(), 1);
}
