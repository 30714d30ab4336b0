//! Every form of a path that does not point down is found, and nothing else is.

use super::super::modules::{built_meanwhile, check};
use super::{SAMPLE, Workspace, lines};

const REGISTRY: &str = "sample/src/registry.rs";
const SLOT: &str = "sample/src/registry/slot.rs";

#[test]
fn a_crate_in_which_all_paths_point_down_has_no_breach() {
    assert_eq!(wrong(Workspace::clean()), [""; 0]);
}

#[test]
fn a_use_is_found() {
    upward("use crate::gateway::Gateway;", "crate::gateway::Gateway");
}

#[test]
fn a_use_of_the_module_itself_is_found() {
    upward("use crate::gateway;", "crate::gateway");
}

#[test]
fn a_use_in_a_group_is_found() {
    upward("use crate::{identity::Name, gateway::{refusal::{Refusal}}};", "crate::gateway::refusal::Refusal");
}

#[test]
fn a_use_of_self_in_a_group_is_found() {
    upward("use crate::{gateway::{self}};", "crate::gateway::self");
}

#[test]
fn a_glob_is_found() {
    upward("use crate::gateway::*;", "crate::gateway");
}

#[test]
fn a_renamed_use_is_found() {
    upward("use crate::gateway::Gateway as Listener;", "crate::gateway::Gateway");
}

#[test]
fn a_pub_use_is_found() {
    upward("pub use crate::gateway::Gateway;", "crate::gateway::Gateway");
}

#[test]
fn a_use_within_a_function_is_found() {
    upward("fn f() { use crate::gateway::Gateway; }", "crate::gateway::Gateway");
}

#[test]
fn super_is_found() {
    upward("use super::gateway::Gateway;", "super::gateway::Gateway");
}

#[test]
fn super_of_super_is_found() {
    let workspace = Workspace::clean().with("registry/slot.rs", "use super::super::gateway::Gateway;");

    assert_eq!(wrong(workspace), [up(SLOT, "super::super::gateway::Gateway")]);
}

#[test]
fn super_counts_modules_written_in_line() {
    upward(
        "mod deep { mod deeper { use super::super::super::gateway::A; } }",
        "super::super::super::gateway::A",
    );
}

#[test]
fn super_within_a_module_written_in_line_stays_in_the_module() {
    let workspace = Workspace::clean().with("registry.rs", "mod gateway {} mod deep { use super::gateway; }");

    assert_eq!(wrong(workspace), [""; 0]);
}

#[test]
fn self_that_climbs_is_found() {
    upward("use self::super::gateway::Gateway;", "self::super::gateway::Gateway");
}

#[test]
fn the_crate_by_its_own_name_is_found() {
    upward("use sample::gateway::Gateway;", "sample::gateway::Gateway");
}

#[test]
fn an_expression_is_found() {
    upward("fn f() -> usize { 1 + crate::gateway::count() }", "crate::gateway::count");
}

#[test]
fn a_pattern_is_found() {
    upward(
        "fn f(n: u8) -> bool { matches(n) } fn matches(n: u8) -> bool { match n { crate::gateway::ONE => true, _ => false } }",
        "crate::gateway::ONE",
    );
}

#[test]
fn a_type_is_found() {
    upward("struct S { gateway: crate::gateway::Gateway }", "crate::gateway::Gateway");
}

#[test]
fn a_type_within_a_type_is_found() {
    upward("type T = Option<Vec<&'static dyn Fn(crate::gateway::Gateway)>>;", "crate::gateway::Gateway");
}

#[test]
fn a_bound_is_found() {
    upward("fn f<T>(_: T) where T: crate::gateway::Listener {}", "crate::gateway::Listener");
}

#[test]
fn the_trait_of_an_impl_is_found() {
    upward("struct S; impl crate::gateway::Listener for S {}", "crate::gateway::Listener");
}

#[test]
fn the_trait_of_a_qualified_path_is_found() {
    upward("fn f() { <() as crate::gateway::Listener>::open() }", "crate::gateway::Listener::open");
}

#[test]
fn a_macro_that_is_called_by_a_path_is_found() {
    upward("fn f() { crate::gateway::refuse!() }", "crate::gateway::refuse");
}

#[test]
fn the_inside_of_a_macro_is_found() {
    upward(r#"fn f() { println!("{}", [crate::gateway::name()]) }"#, "crate::gateway::name");
}

#[test]
fn a_group_within_a_macro_is_found() {
    upward("wrap! { use crate::{identity::Name, gateway::Gateway}; }", "crate::gateway::Gateway");
}

#[test]
fn super_within_a_macro_is_found() {
    upward("wrap! { super::gateway::Gateway }", "super::gateway::Gateway");
}

#[test]
fn the_body_of_a_macro_is_found() {
    upward("macro_rules! name { () => { $crate::gateway::name() } }", "crate::gateway::name");
}

#[test]
fn an_attribute_is_found() {
    upward("#[derive(crate::gateway::Listener)] struct S;", "crate::gateway::Listener");
}

#[test]
fn a_path_in_a_string_of_an_attribute_is_found() {
    upward(r#"struct S { #[serde(with = "crate::gateway::codec")] a: u8 }"#, "crate::gateway::codec");
}

#[test]
fn code_for_all_but_tests_is_read() {
    upward("#[cfg(not(test))] use crate::gateway::Gateway;", "crate::gateway::Gateway");
}

#[test]
fn a_module_called_tests_that_ships_is_read() {
    let workspace = Workspace::clean()
        .with("registry.rs", "mod tests;")
        .with("registry/tests.rs", "use crate::gateway::Gateway;");

    assert_eq!(wrong(workspace), [up("sample/src/registry/tests.rs", "crate::gateway::Gateway")]);
}

#[test]
fn a_file_that_no_module_declares_is_read() {
    let workspace = Workspace::clean().with("registry/forgotten.rs", "use crate::gateway::Gateway;");

    assert_eq!(wrong(workspace), [up("sample/src/registry/forgotten.rs", "crate::gateway::Gateway")]);
}

#[test]
fn modules_of_one_layer_do_not_use_each_other() {
    let workspace = Workspace::clean().with("agents.rs", "use crate::gateway::Gateway;");

    assert_eq!(
        wrong(workspace),
        [
            "sample/src/agents.rs:2: `crate::gateway::Gateway` points sideways: from `agents` (entry points) to \
          `gateway` (entry points); a module uses only what is below it"
        ]
    );
}

#[test]
fn the_root_taken_in_as_a_whole_is_found() {
    for (code, written) in [
        ("use crate::*;", "crate"),
        ("use super::*;", "super"),
        ("use crate as sample_again;", "crate"),
        ("use super::{self as root};", "super::self"),
    ] {
        let found = wrong(Workspace::clean().with("registry.rs", code));

        let says = "imports all modules at once; name the one you need";
        assert_eq!(found, [format!("{REGISTRY}:2: `{written}` {says}")]);
    }
}

#[test]
fn a_name_that_the_root_re_exports_is_no_way_around() {
    let workspace = Workspace::clean().with("registry.rs", "use crate::Gateway;");

    assert_eq!(
        wrong(workspace),
        [format!(
            "{REGISTRY}:2: `crate::Gateway` names `Gateway` of the crate's root, which is no module; name the module \
             where it lives"
        )]
    );
}

#[test]
fn a_module_in_another_place_than_its_name_says_is_found() {
    for code in [r#"#[path = "gateway/refusal.rs"] mod slot;"#, "extern crate self as other;"] {
        let found = wrong(Workspace::clean().with("registry.rs", code));

        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(&format!("{REGISTRY}:2: this gives a module a name")), "{found:?}");
    }
}

#[test]
fn main_names_app_and_config_only() {
    let workspace =
        Workspace::clean().with("main.rs", "use sample::{app, config::Config, registry::Registry};");

    assert_eq!(
        wrong(workspace),
        ["sample/src/main.rs:2: `sample::registry::Registry`: a main.rs names only `app` and `config`"]
    );
}

#[test]
fn an_unknown_module_is_reported_once_with_the_file_to_edit() {
    let workspace =
        Workspace::clean().with("attic.rs", "mod box_of_letters;").with("attic/box_of_letters.rs", "");

    assert_eq!(
        wrong(workspace),
        ["sample/src/attic.rs: the layer table of sample has no module `attic`; add it in \
          tests/src/layers/table.rs"]
    );
}

#[test]
fn an_absent_module_is_reported_and_a_planned_one_is_not() {
    let workspace = Workspace::clean().without("agents.rs");

    assert_eq!(
        wrong(workspace),
        [
            "tests/src/layers/table.rs: sample has no module `agents`; build it, or call it planned in this table"
        ]
    );
}

#[test]
fn a_planned_module_that_is_there_is_named() {
    assert_eq!(built_meanwhile(&SAMPLE, &Workspace::clean().with("proxy.rs", "").read()), ["proxy"]);
}

#[test]
fn a_file_that_cannot_be_parsed_is_a_violation() {
    let workspace = Workspace::clean().with("registry.rs", "fn {");

    let violation = super::Crate::read(workspace.0.path(), "sample").unwrap_err();
    assert!(violation.to_string().starts_with(&format!("{REGISTRY}:2: this is not Rust")), "{violation}");
}

/// Claims that this code in the registry breaks exactly one rule: its path points up to the gateway.
fn upward(code: &str, written: &str) {
    assert_eq!(wrong(Workspace::clean().with("registry.rs", code)), [up(REGISTRY, written)]);
}

fn up(file: &str, written: &str) -> String {
    format!(
        "{file}:2: `{written}` points up: from `registry` (routing) to `gateway` (entry points); a module uses only what is \
         below it"
    )
}

fn wrong(workspace: Workspace) -> Vec<String> {
    lines(&check(&SAMPLE, &workspace.read()))
}
