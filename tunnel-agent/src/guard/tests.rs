//! Requests that the guard clears, and the reasons for which it refuses others.

use proto::wire::{Assert, PassThrough};

use super::*;

const THROUGH: Identity = Identity::PassThrough(PassThrough {});

fn assert_user(user: &str) -> Identity {
    Identity::Assert(Assert { user: user.to_owned(), groups: Vec::new() })
}

#[test]
fn callers_own_credentials_pass_only_where_the_agents_file_says_so() {
    let closed = Guard::new(AllowList::default(), false);
    let open = Guard::new(AllowList::default(), true);

    assert_eq!(open.check(&THROUGH), Ok(Cleared::PassThrough(PassedThrough(()))));
    assert_eq!(closed.check(&THROUGH), Err(NotCleared::PassThrough));
}

#[test]
fn an_unlisted_user_is_refused_whether_credentials_pass_or_not() {
    for passes_through in [false, true] {
        let guard = Guard::new(AllowList::default(), passes_through);
        let Ok(Cleared::Assert(_)) = guard.check(&assert_user("tombolo:ann")) else {
            panic!("the list has her");
        };
        let refused = guard.check(&assert_user("ann")).expect_err("the list has her not");
        assert!(matches!(refused, NotCleared::Identity(_)), "{refused:?}");
    }
}

#[test]
fn the_reason_of_a_refusal_names_nobody() {
    let guard = Guard::new(AllowList::default(), false);
    let refused = |identity: &Identity| {
        let refused = guard.check(identity).expect_err("it may not");
        (refused.reason().as_str(), refused.code())
    };

    assert_eq!(refused(&THROUGH), ("pass_through", AbortCode::NoPassThrough));
    assert_eq!(refused(&assert_user("ann")), ("unlisted", AbortCode::GuardRefused));
    assert_eq!(refused(&assert_user("")), ("empty", AbortCode::GuardRefused));
}
