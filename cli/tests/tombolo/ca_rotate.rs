//! `tombolo ca rotate`.

use trust::bundle::{Anchors, TrustBundle};
use trust::{Pin, Role};

use crate::bench::{Bench, assert_says};
use crate::certificate::{accepted_as_server, all, fields, only};

#[test]
fn during_an_exchange_a_server_is_accepted_by_who_knows_the_old_root_and_by_who_knows_the_new() {
    let bench = Bench::with_authority();
    bench.write("old.crt", bench.text("pki/server-ca.crt"));

    bench.done("ca rotate --dir pki --role server");
    bench.done("ca issue server --dir pki --name h.example");

    let roots = all(&bench, "pki/server-ca.crt");
    assert_eq!(roots.len(), 2);
    assert_eq!(roots[1], only(&bench, "old.crt"));
    bench.write("new.crt", first(&bench.text("pki/server-ca.crt")));
    for root in ["old.crt", "new.crt"] {
        assert_eq!(accepted_as_server(&bench, root, "pki/server.crt", "h.example"), Ok(()), "{root}");
    }
    assert_eq!(bench.mode("pki/server-ca.old.key"), 0o600);

    let early = bench.failed("ca rotate --dir pki --role server --finish");
    assert_says(&early, "this exchange began less than 90 days ago");
    bench.done("ca rotate --dir pki --role server --finish --early");
    bench.done("ca issue server --dir pki --name h.example --force");
    assert_eq!(only(&bench, "pki/server-ca.crt"), only(&bench, "new.crt"));
    assert_eq!(accepted_as_server(&bench, "new.crt", "pki/server.crt", "h.example"), Ok(()));
    assert!(accepted_as_server(&bench, "old.crt", "pki/server.crt", "h.example").is_err());
}

#[test]
fn who_pins_the_old_root_learns_the_new_one_by_the_bundle() {
    let bench = Bench::with_authority();
    let old = pin(&bench, "pki/server-ca.crt");
    let pinned = Anchors::new("tombolo".parse().unwrap()).and_pin(old);
    let bundle = || std::fs::read(bench.path("pki/trust.bundle")).unwrap();
    let first = pinned.accept(&bundle(), None).unwrap().unwrap();
    assert_eq!(first.version(), 1);
    for role in Role::ALL {
        assert_eq!(first.roots(role), [only(&bench, &format!("pki/{role}-ca.crt"))], "{role}");
    }

    bench.done("ca rotate --dir pki --role server");
    let overlap = pinned.accept(&bundle(), Some(&first)).unwrap().unwrap();
    assert_eq!((overlap.version(), overlap.roots(Role::Server).len()), (2, 2));

    bench.done("ca rotate --dir pki --role server --finish --early");
    assert!(pinned.accept(&bundle(), Some(&overlap)).is_err(), "the old root has signed nothing since");
    let learned = pinned.replaced_by(overlap.roots(Role::Server));
    let last = learned.accept(&bundle(), Some(&overlap)).unwrap().unwrap();
    assert_eq!((last.version(), last.roots(Role::Server).len()), (3, 1));
    assert_ne!(pin(&bench, "pki/server-ca.crt"), old);
}

#[test]
fn the_root_of_another_role_is_exchanged_under_the_servers_signature() {
    let bench = Bench::with_authority();
    bench.done("ca rotate --dir pki --role agent");
    let bundle = TrustBundle::look(&std::fs::read(bench.path("pki/trust.bundle")).unwrap()).unwrap();
    assert_eq!((bundle.roots(Role::Agent).len(), bundle.roots(Role::Server).len()), (2, 1));
    let said = bench.done("ca show pki/trust.bundle");
    assert_says(&said, "bundle 2 of the trust domain tombolo");
    assert_says(&said, &format!("server {}", pin(&bench, "pki/server-ca.crt")));
}

#[test]
fn steps_out_of_order_are_refused() {
    let bench = Bench::with_authority();
    let begin = "ca rotate --dir pki --role caller";
    assert_says(
        &bench.failed(&format!("{begin} --finish")),
        "no exchange of the caller root has begun; begin it without --finish",
    );
    bench.done(begin);
    assert_says(
        &bench.failed(begin),
        "the exchange of the caller root has begun already; end it with --finish",
    );
}

fn pin(bench: &Bench, file: &str) -> Pin {
    Pin::of_certificate(&fields(&all(bench, file)[0]))
}

/// The first certificate of a PEM text.
fn first(text: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----\n";
    text[..text.find(END).unwrap() + END.len()].to_owned()
}
