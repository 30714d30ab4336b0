//! Every form of a path that does not point downstairs is found, and nothing else is.

use super::super::rooms::{built_meanwhile, check};
use super::{HOUSE, Workspace, lines};

const REGISTRY: &str = "house/src/registry.rs";
const SLOT: &str = "house/src/registry/slot.rs";

#[test]
fn a_house_in_which_all_paths_point_downstairs_is_as_it_should_be() {
    assert_eq!(wrong(Workspace::clean()), [""; 0]);
}

#[test]
fn a_use_is_found() {
    upward("use crate::gateway::Gateway;", "crate::gateway::Gateway");
}

#[test]
fn a_use_of_the_room_itself_is_found() {
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
    upward("use crate::gateway::Gateway as Door;", "crate::gateway::Gateway");
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
fn super_within_a_module_written_in_line_stays_in_the_room() {
    let workspace = Workspace::clean().with("registry.rs", "mod gateway {} mod deep { use super::gateway; }");

    assert_eq!(wrong(workspace), [""; 0]);
}

#[test]
fn self_that_climbs_is_found() {
    upward("use self::super::gateway::Gateway;", "self::super::gateway::Gateway");
}

#[test]
fn the_crate_by_its_own_name_is_found() {
    upward("use house::gateway::Gateway;", "house::gateway::Gateway");
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
    upward("struct S { door: crate::gateway::Gateway }", "crate::gateway::Gateway");
}

#[test]
fn a_type_within_a_type_is_found() {
    upward("type T = Option<Vec<&'static dyn Fn(crate::gateway::Gateway)>>;", "crate::gateway::Gateway");
}

#[test]
fn a_bound_is_found() {
    upward("fn f<T>(_: T) where T: crate::gateway::Door {}", "crate::gateway::Door");
}

#[test]
fn the_trait_of_an_impl_is_found() {
    upward("struct S; impl crate::gateway::Door for S {}", "crate::gateway::Door");
}

#[test]
fn the_trait_of_a_qualified_path_is_found() {
    upward("fn f() { <() as crate::gateway::Door>::open() }", "crate::gateway::Door::open");
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
    upward("#[derive(crate::gateway::Door)] struct S;", "crate::gateway::Door");
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

    assert_eq!(wrong(workspace), [up("house/src/registry/tests.rs", "crate::gateway::Gateway")]);
}

#[test]
fn a_file_that_no_module_declares_is_read() {
    let workspace = Workspace::clean().with("registry/forgotten.rs", "use crate::gateway::Gateway;");

    assert_eq!(wrong(workspace), [up("house/src/registry/forgotten.rs", "crate::gateway::Gateway")]);
}

#[test]
fn doors_do_not_see_each_other() {
    let workspace = Workspace::clean().with("reception.rs", "use crate::gateway::Gateway;");

    assert_eq!(
        wrong(workspace),
        ["house/src/reception.rs:2: `crate::gateway::Gateway` points sideways: from `reception` (doors) to \
          `gateway` (doors); a room sees only what is below it"]
    );
}

#[test]
fn the_root_taken_in_as_a_whole_is_found() {
    for (code, written) in [
        ("use crate::*;", "crate"),
        ("use super::*;", "super"),
        ("use crate as house_again;", "crate"),
        ("use super::{self as root};", "super::self"),
    ] {
        let found = wrong(Workspace::clean().with("registry.rs", code));

        let says = "takes in all rooms at once; name the room that is meant";
        assert_eq!(found, [format!("{REGISTRY}:2: `{written}` {says}")]);
    }
}

#[test]
fn a_name_that_the_root_re_exports_is_no_way_around() {
    let workspace = Workspace::clean().with("registry.rs", "use crate::Gateway;");

    assert_eq!(
        wrong(workspace),
        [format!(
            "{REGISTRY}:2: `crate::Gateway` names `Gateway` of the crate's root, which is no room; name the room \
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
        Workspace::clean().with("main.rs", "use house::{app, config::Config, registry::Registry};");

    assert_eq!(
        wrong(workspace),
        ["house/src/main.rs:2: `house::registry::Registry`: a main.rs names only `app` and `config`"]
    );
}

#[test]
fn an_unknown_room_is_told_once_and_where_to_add_it() {
    let workspace =
        Workspace::clean().with("attic.rs", "mod box_of_letters;").with("attic/box_of_letters.rs", "");

    assert_eq!(
        wrong(workspace),
        ["house/src/attic.rs: the floor plan of house has no room `attic`; add it in \
          tests/src/floor_plan/plan.rs"]
    );
}

#[test]
fn a_room_that_must_be_there_and_is_not_is_told_and_a_planned_one_is_not() {
    let workspace = Workspace::clean().without("reception.rs");

    assert_eq!(
        wrong(workspace),
        [
            "tests/src/floor_plan/plan.rs: house has no room `reception`; build it, or call it planned in this table"
        ]
    );
}

#[test]
fn a_planned_room_that_is_there_is_named() {
    assert_eq!(built_meanwhile(&HOUSE, &Workspace::clean().with("proxy.rs", "").read()), ["proxy"]);
}

#[test]
fn a_file_that_cannot_be_parsed_is_a_violation() {
    let workspace = Workspace::clean().with("registry.rs", "fn {");

    let violation = super::Crate::read(workspace.0.path(), "house").unwrap_err();
    assert!(violation.to_string().starts_with(&format!("{REGISTRY}:2: this is not Rust")), "{violation}");
}

/// Claims that this code in the registry breaks exactly one rule: its path points up to the gateway.
fn upward(code: &str, written: &str) {
    assert_eq!(wrong(Workspace::clean().with("registry.rs", code)), [up(REGISTRY, written)]);
}

fn up(file: &str, written: &str) -> String {
    format!(
        "{file}:2: `{written}` points up: from `registry` (hall) to `gateway` (doors); a room sees only what is \
         below it"
    )
}

fn wrong(workspace: Workspace) -> Vec<String> {
    lines(&check(&HOUSE, &workspace.read()))
}
