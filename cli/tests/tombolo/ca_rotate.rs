//! Tests of `tombolo ca rotate`: both roots during a rotation, and the new one after it.

use trust::bundle::{Anchors, TrustBundle};
use trust::{Pin, Role};

use crate::certificate::{accepted_as_server, all, fields, only};
use crate::workdir::{WorkDir, assert_says};

/// Peers that know the old root and peers that know the new one; after the rotation only the latter.
#[test]
fn during_a_rotation_both_roots_accept_a_server() {
    let workdir = WorkDir::with_authority();
    workdir.write("old.crt", workdir.text("pki/server-ca.crt"));

    workdir.succeeds("ca rotate --dir pki --role server");
    workdir.succeeds("ca issue server --dir pki --name h.example");

    let roots = all(&workdir, "pki/server-ca.crt");
    assert_eq!(roots.len(), 2);
    assert_eq!(roots[1], only(&workdir, "old.crt"));
    workdir.write("new.crt", first(&workdir.text("pki/server-ca.crt")));
    for root in ["old.crt", "new.crt"] {
        assert_eq!(accepted_as_server(&workdir, root, "pki/server.crt", "h.example"), Ok(()), "{root}");
    }
    assert_eq!(workdir.mode("pki/server-ca.old.key"), 0o600);

    let early = workdir.fails("ca rotate --dir pki --role server --finish");
    assert_says(&early, "this rotation began less than 90 days ago");
    workdir.succeeds("ca rotate --dir pki --role server --finish --early");
    workdir.succeeds("ca issue server --dir pki --name h.example --force");
    assert_eq!(only(&workdir, "pki/server-ca.crt"), only(&workdir, "new.crt"));
    assert_eq!(accepted_as_server(&workdir, "new.crt", "pki/server.crt", "h.example"), Ok(()));
    assert!(accepted_as_server(&workdir, "old.crt", "pki/server.crt", "h.example").is_err());
}

#[test]
fn a_pin_of_the_old_root_accepts_the_new_root_by_the_bundle() {
    let workdir = WorkDir::with_authority();
    let old = pin(&workdir, "pki/server-ca.crt");
    let pinned = Anchors::new("tombolo".parse().unwrap()).and_pin(old);
    let bundle = || std::fs::read(workdir.path("pki/trust.bundle")).unwrap();
    let first = pinned.accept(&bundle(), None).unwrap().unwrap();
    assert_eq!(first.version(), 1);
    for role in Role::ALL {
        assert_eq!(first.roots(role), [only(&workdir, &format!("pki/{role}-ca.crt"))], "{role}");
    }

    workdir.succeeds("ca rotate --dir pki --role server");
    let overlap = pinned.accept(&bundle(), Some(&first)).unwrap().unwrap();
    assert_eq!((overlap.version(), overlap.roots(Role::Server).len()), (2, 2));

    workdir.succeeds("ca rotate --dir pki --role server --finish --early");
    assert!(pinned.accept(&bundle(), Some(&overlap)).is_err(), "the old root has signed nothing since");
    let learned = pinned.replaced_by(overlap.roots(Role::Server));
    let last = learned.accept(&bundle(), Some(&overlap)).unwrap().unwrap();
    assert_eq!((last.version(), last.roots(Role::Server).len()), (3, 1));
    assert_ne!(pin(&workdir, "pki/server-ca.crt"), old);
}

#[test]
fn the_root_of_another_role_is_rotated_under_the_servers_signature() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca rotate --dir pki --role agent");
    let bundle =
        TrustBundle::decode_unverified(&std::fs::read(workdir.path("pki/trust.bundle")).unwrap()).unwrap();
    assert_eq!((bundle.roots(Role::Agent).len(), bundle.roots(Role::Server).len()), (2, 1));
    let said = workdir.succeeds("ca show pki/trust.bundle");
    assert_says(&said, "bundle 2 of the trust domain tombolo");
    assert_says(&said, &format!("server {}", pin(&workdir, "pki/server-ca.crt")));
}

/// An agent that was off since the rotation of servers began trusts only their old root.
#[test]
fn both_server_roots_sign_other_roles_bundles_during_their_rotation() {
    let workdir = WorkDir::with_authority();
    let old = pin(&workdir, "pki/server-ca.crt");
    workdir.succeeds("ca rotate --dir pki --role server");
    let new = pin(&workdir, "pki/server-ca.crt");

    for order in ["--role caller", "--role caller --finish"] {
        workdir.succeeds(&format!("ca rotate --dir pki {order}"));
        let bundle = std::fs::read(workdir.path("pki/trust.bundle")).unwrap();
        for root in [old, new] {
            let anchors = Anchors::new("tombolo".parse().unwrap()).and_pin(root);
            assert!(anchors.accept(&bundle, None).is_ok(), "{order}");
        }
    }
}

#[test]
fn steps_out_of_order_are_refused() {
    let workdir = WorkDir::with_authority();
    let begin = "ca rotate --dir pki --role caller";
    assert_says(
        &workdir.fails(&format!("{begin} --finish")),
        "no rotation of the caller root has begun; begin it without --finish",
    );
    workdir.succeeds(begin);
    assert_says(
        &workdir.fails(begin),
        "the rotation of the caller root has begun already; end it with --finish",
    );
}

fn pin(workdir: &WorkDir, file: &str) -> Pin {
    Pin::of_certificate(&fields(&all(workdir, file)[0]))
}

/// The first certificate of a PEM text.
fn first(text: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----\n";
    text[..text.find(END).unwrap() + END.len()].to_owned()
}
