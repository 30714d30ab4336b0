//! Claims about what ends an exchange and what does not.

use std::time::UNIX_EPOCH;

use futures::FutureExt as _;
use http::Method;
use policy::Rules;
use policy::action::Action;
use trust::user_token::TokenDigest;

use super::*;
use crate::authz::Delegation;
use crate::directory::{Callers, ClusterSpecUpdate};
use crate::identity::{AuthMethods, Caller, Prefixes, SharedTokens, StaticTokens};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test]
async fn a_revocation_ends_the_exchanges_of_its_caller_only() {
    let fixture = Fixture::new();
    let (ann, ben) = (fixture.enter("ann").unwrap(), fixture.enter("ben").unwrap());
    fixture.revoke("ann").await;

    fixture.table.check_all(Trigger::Change).await;

    assert_eq!((ann.termination(), ben.termination()), (Some(TerminationReason::Revoked), None));
    assert_eq!(ann.terminated().now_or_never(), Some(TerminationReason::Revoked));
    assert_eq!(ben.terminated().now_or_never(), None);
    assert_eq!(fixture.enter("ann").err(), Some(TerminationReason::Revoked));
}

#[tokio::test]
async fn a_new_policy_ends_what_it_forbids_and_nothing_else() {
    let fixture = Fixture::new();
    let (ann, ben) = (fixture.enter("ann").unwrap(), fixture.enter("ben").unwrap());
    fixture.policy.replace(rules(&["ben"]));

    fixture.table.check_all(Trigger::Change).await;

    assert_eq!((ann.termination(), ben.termination()), (Some(TerminationReason::PolicyChanged), None));
}

#[tokio::test]
async fn a_watch_of_clusters_ends_with_its_credential_and_not_with_a_policy() {
    let fixture = Fixture::new();
    let (ann, ben) = (Caller::for_test("ann", &[]), Caller::for_test("ben", &[]));
    let enter = |caller| fixture.table.enter_list_watch(caller, 1);
    let (of_ann, of_ben) = (enter(&ann).unwrap(), enter(&ben).unwrap());

    fixture.policy.replace(rules(&["cem"]));
    fixture.table.check_all(Trigger::Change).await;
    assert_eq!((of_ann.termination(), of_ben.termination()), (None, None));

    fixture.revoke("ann").await;
    fixture.table.check_all(Trigger::Change).await;
    assert_eq!((of_ann.termination(), of_ben.termination()), (Some(TerminationReason::Revoked), None));
    assert_eq!(enter(&ann).err(), Some(TerminationReason::Revoked));
}

#[tokio::test]
async fn a_permit_of_an_earlier_policy_is_checked_by_the_one_in_force() {
    let fixture = Fixture::new();
    let permit = fixture.permit("ann");
    fixture.policy.replace(rules(&["ben"]));

    assert_eq!(fixture.table.enter(&permit).err(), Some(TerminationReason::PolicyChanged));
    assert_eq!(fixture.count(), 0);
}

#[tokio::test]
async fn an_exchange_ends_when_its_cluster_loses_the_label_that_allowed_it() {
    let fixture = Fixture::new();
    let edge = "edge-a".parse::<ClusterId>().unwrap();
    let label = |value: &str| ClusterSpecUpdate {
        set_labels: vec![("stage".to_owned(), value.to_owned())].into_iter().collect(),
        ..ClusterSpecUpdate::default()
    };
    fixture.directory.create_cluster(edge.clone(), label("test"), UNIX_EPOCH).await.unwrap();
    fixture.policy.replace(parsed(
        &rule("ann").replace("names: ['*']", "labelSelector: { matchLabels: { stage: test } }"),
    ));
    let ann = fixture.enter("ann").unwrap();

    fixture.directory.update_cluster(edge, label("live")).await.unwrap();
    fixture.table.check_all(Trigger::Change).await;

    assert_eq!(ann.termination(), Some(TerminationReason::PolicyChanged));
}

#[tokio::test]
async fn an_exchange_ends_when_its_token_is_removed_or_changes_its_owner() {
    let prefixes = || Prefixes { username: "token:".to_owned(), groups: "token:".to_owned() };
    let line = |token: &str, user: &str| format!("{},{user},1\n", TokenDigest::of(token.as_bytes()));
    let parsed = |file: String| StaticTokens::parse(file.as_bytes(), prefixes()).unwrap();
    let [ann, ben, cid] = ["ann", "ben", "cid"].map(|user| line(&format!("{user}s"), user));
    let book = SharedTokens::new(parsed(format!("{ann}{ben}{cid}")));
    let ways = AuthMethods { tokens: Some(book.clone()), ..AuthMethods::default() };
    let authenticator = Authenticator::new("tombolo".to_owned(), ways);
    let fixture = Fixture::with_authenticator(DAY, authenticator.clone());
    fixture.policy.replace(rules(&["token:ann", "token:ben", "token:cid"]));
    let enter = async |token: &str| {
        let authorization = http::HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        let headers: http::HeaderMap = [(http::header::AUTHORIZATION, authorization)].into_iter().collect();
        let authenticated = authenticator.authenticate(None, &headers, SystemTime::now()).await.unwrap();
        fixture.table.enter(&fixture.permit_of(authenticated.claimed()))
    };
    let (ann_runs, ben_runs, cid_runs) =
        (enter("anns").await.unwrap(), enter("bens").await.unwrap(), enter("cids").await.unwrap());

    // A line moves, one goes, and one names another holder now.
    let changes = async {
        book.replace(parsed(format!("{}{}", line("cids", "ann"), line("anns", "ann"))));
        assert_eq!(ben_runs.terminated().await, TerminationReason::Revoked);
        assert_eq!(cid_runs.terminated().await, TerminationReason::Revoked);
    };
    tokio::select! {
        () = fixture.table.clone().enforce() => panic!("the task does not end"),
        () = changes => {}
    }
    assert_eq!(ann_runs.termination(), None);
    assert!(enter("anns").await.is_ok());
}

#[tokio::test]
async fn an_exchange_ends_at_its_longest_duration() {
    let fixture = Fixture::with_age_max(Duration::ZERO);
    assert_eq!(fixture.enter("ann").err(), Some(TerminationReason::TooOld));
    let fixture = Fixture::new();
    let ann = fixture.enter("ann").unwrap();
    fixture.table.check_all(Trigger::Time).await;
    assert_eq!(ann.termination(), None);
}

#[tokio::test]
async fn an_exchange_is_in_the_table_until_its_last_clone_is_dropped() {
    let fixture = Fixture::new();
    let ann = fixture.enter("ann").unwrap();
    let also_ann = ann.clone();
    drop(ann);
    assert_eq!(fixture.count(), 1);
    drop(also_ann);
    assert_eq!(fixture.count(), 0);
}

#[tokio::test]
async fn the_background_task_sees_each_change() {
    let fixture = Fixture::new();
    let (ann, ben) = (fixture.enter("ann").unwrap(), fixture.enter("ben").unwrap());
    let changes = async {
        fixture.revoke("ann").await;
        assert_eq!(ann.terminated().await, TerminationReason::Revoked);
        fixture.policy.replace(rules(&["ann"]));
        assert_eq!(ben.terminated().await, TerminationReason::PolicyChanged);
    };
    tokio::select! {
        () = fixture.table.clone().enforce() => panic!("the task does not end"),
        () = changes => {}
    }
}

/// A table with a directory, and a policy that lets ann and ben do everything.
struct Fixture {
    table: ExchangeTable,
    directory: Directory,
    policy: Policy,
    _state: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::with_age_max(DAY)
    }

    fn with_age_max(age_max: Duration) -> Self {
        Self::with_authenticator(age_max, Authenticator::new("tombolo".to_owned(), AuthMethods::default()))
    }

    fn with_authenticator(age_max: Duration, authenticator: Authenticator) -> Self {
        let state = tempfile::tempdir().unwrap();
        let directory =
            Directory::open(&daemon::StateDir::open(&state.path().join("state")).unwrap()).unwrap();
        let policy = Policy::new(rules(&["ann", "ben"]));
        let table = ExchangeTable::new(
            directory.clone(),
            policy.clone(),
            Delegation::default(),
            authenticator,
            age_max,
        );
        Self { table, directory, policy, _state: state }
    }

    fn permit(&self, user: &str) -> Permit {
        self.permit_of(&Caller::for_test(user, &[]))
    }

    fn permit_of(&self, caller: &Caller) -> Permit {
        let cluster = "edge-a".parse().unwrap();
        let action = Action::of_cluster(cluster, &Method::GET, "/api/v1/pods", None).unwrap();
        let facts = ClusterFacts { labels: self.directory.labels(action.cluster()) };
        self.policy.snapshot().authorize(caller, None, action, &facts).unwrap().undelegated()
    }

    fn enter(&self, user: &str) -> Result<RunningExchange, TerminationReason> {
        self.table.enter(&self.permit(user))
    }

    async fn revoke(&self, user: &str) {
        let named = Callers::Named(user.to_owned());
        self.directory.revoke_callers(named, None, UNIX_EPOCH).await.unwrap();
    }

    fn count(&self) -> usize {
        (0..SHARDS).map(|shard| self.table.0.shard(shard as u64).len()).sum()
    }
}

/// A policy that lets these users do everything everywhere.
fn rules(users: &[&str]) -> Rules {
    parsed(&users.iter().map(|user| rule(user)).collect::<String>())
}

fn rule(user: &str) -> String {
    format!(
        "- {{ name: {}, effect: Allow, subjects: [{{ method: token, user: {user:?} }}], clusters: {{ names: ['*'] }}, \
         mode: kube-api, actions: [{{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], namespaces: ['*'] }}] }}\n",
        user.replace(':', "-")
    )
}

fn parsed(rules: &str) -> Rules {
    let file = format!("apiVersion: tombolo.dev/v1alpha1\nkind: Policy\nrules:\n{rules}");
    let document = daemon::config::parse(&file, "policy.yaml".as_ref(), policy::KIND).unwrap();
    Rules::from_document(&document).unwrap()
}
