//! A server that asserts any identity, and the ones that an agent lets pass.

use proto::AbortCode;
use proto::allow_list::{GROUPS_MAX, NAME_BYTES_MAX};
use proto::peering::ViaRequest;
use proto::wire::{Assert, HttpOpen, StreamOpen, stream_open};
use tests::carrier::is_not_quic;

use crate::rogue_server::{AUDIT_ID, ROGUE_SPEAKS, RogueServer};

/// The agent's own list of identities. Everything else has its default.
const GUARD: &str = "impersonation: { systemNames: [\"system:serviceaccount:ci:deployer\"] }\n";

/// Names that no default lets pass, as a user or as a group.
const EVIL: [&str; 33] = [
    "",
    " ",
    "*",
    "admin",
    "cluster-admin",
    "kubernetes-admin",
    "root",
    "system:",
    "system:admin",
    "system:anonymous",
    "system:authenticated",
    "system:kube-controller-manager",
    "system:masters",
    "system:monitoring",
    "system:node:edge-1",
    "system:nodes",
    "system:serviceaccount:ci:deployer2",
    "system:serviceaccount:kube-system:default",
    "system:serviceaccount:tombolo:tunnel-agent",
    "system:serviceaccounts",
    "system:unauthenticated",
    "kubeadm:cluster-admins",
    "tombolo",
    "tombolo;ann",
    "Tombolo:ann",
    "TOMBOLO:ann",
    "xtombolo:ann",
    " tombolo:ann",
    "tombolo:ann ",
    "tombolo:ann\r\nImpersonate-Group: system:masters",
    "tombolo:ann\nx",
    "tombolo:\0",
    "tombolo\u{ff1a}ann",
];

/// The test tries two hundred identities.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_asserts_no_identity_outside_of_its_own_file() {
    if is_not_quic("an_agent_asserts_no_identity_outside_of_its_own_file", ROGUE_SPEAKS) {
        return;
    }
    let rogue = RogueServer::guarded(GUARD).await;
    let long = format!("tombolo:{}", "x".repeat(NAME_BYTES_MAX));
    let names = || EVIL.into_iter().chain([long.as_str()]);
    let good = ["tombolo:dev"; GROUPS_MAX - 1];
    let evil: Vec<Assert> = names()
        .flat_map(|name| {
            [
                assert(name, &[]),
                assert(name, &["tombolo:dev"]),
                assert("tombolo:ann", &[name]),
                assert("tombolo:ann", &["tombolo:dev", name]),
                assert("tombolo:ann", &[name, "tombolo:dev"]),
                assert("tombolo:ann", &[&good[..], &[name]].concat()),
            ]
        })
        .chain([assert("tombolo:ann", &["tombolo:dev"; GROUPS_MAX + 1])])
        .collect();
    assert!(evil.len() > 200, "{}", evil.len());

    for identity in &evil {
        let open = StreamOpen::http(identity.clone(), AUDIT_ID.to_owned(), false);
        assert_eq!(rogue.refusal_of(&open).await, Some(AbortCode::GuardRefused), "{identity:?}");
    }

    assert_eq!(rogue.asserted(), Vec::<(String, Vec<String>)>::new());
    let allowed = [
        assert("tombolo:ann", &["tombolo:dev", "tombolo:ops"]),
        assert("system:serviceaccount:ci:deployer", &[]),
        assert("tombolo:ann", &["tombolo:dev"; GROUPS_MAX]),
    ];
    for identity in &allowed {
        assert_eq!(rogue.status_as(identity.clone()).await, "200", "{identity:?}");
    }
    let allowed: Vec<_> = allowed.into_iter().map(|Assert { user, groups }| (user, groups)).collect();
    assert_eq!(rogue.asserted(), allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_an_identity_never_runs_as_the_agent_itself() {
    if is_not_quic("a_stream_without_an_identity_never_runs_as_the_agent_itself", ROGUE_SPEAKS) {
        return;
    }
    let rogue = RogueServer::guarded(GUARD).await;
    // An identity of a kind that the agent does not know reads as none.
    let nobody = HttpOpen { audit_id: AUDIT_ID.to_owned(), ..HttpOpen::default() };

    for open in [
        StreamOpen { kind: Some(stream_open::Kind::Http(nobody)), number: 0 },
        StreamOpen { kind: Some(stream_open::Kind::Http(HttpOpen::default())), number: 0 },
        StreamOpen { kind: None, number: 0 },
    ] {
        assert_eq!(rogue.refusal_of(&open).await, Some(AbortCode::BadOpen), "{open:?}");
    }
    let empty = StreamOpen::http(Assert::default(), AUDIT_ID.to_owned(), false);
    assert_eq!(rogue.refusal_of(&empty).await, Some(AbortCode::GuardRefused));

    assert_eq!(rogue.served(), 0);
}

/// Although the identity within it may be asserted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_serves_no_stream_that_is_meant_for_a_server() {
    if is_not_quic("an_agent_serves_no_stream_that_is_meant_for_a_server", ROGUE_SPEAKS) {
        return;
    }
    let rogue = RogueServer::guarded(GUARD).await;
    let cluster = "edge-a".parse().unwrap();
    let allowed = StreamOpen::http(assert("tombolo:ann", &[]), AUDIT_ID.to_owned(), false);
    let dial = StreamOpen::dial("127.0.0.1:80".to_owned(), AUDIT_ID.to_owned());

    for open in [allowed, dial] {
        let via = ViaRequest::wrap(&cluster, open).unwrap();
        assert_eq!(rogue.refusal_of(&via).await, Some(AbortCode::BadOpen), "{via:?}");
    }

    assert_eq!(rogue.served(), 0);
}

fn assert(user: &str, groups: &[&str]) -> Assert {
    Assert { user: user.to_owned(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
}
