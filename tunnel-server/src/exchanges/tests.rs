//! What ends an exchange, and what does not.

use std::time::UNIX_EPOCH;

use futures::FutureExt as _;
use http::Method;
use policy::Rules;
use policy::action::Action;
use trust::user_token::TokenDigest;

use super::*;
use crate::directory::{Callers, ClusterSpecUpdate};
use crate::identity::{AuthMethods, Caller, Prefixes, SharedTokens, StaticTokens};
use crate::permit::Delegation;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test]
async fn a_revoked_callers_exchanges_end_and_nobody_elses() {
    let house = House::new();
    let (ann, ben) = (house.enter("ann").unwrap(), house.enter("ben").unwrap());
    house.revoke("ann").await;

    house.table.look(Cause::Change).await;

    assert_eq!((ann.end(), ben.end()), (Some(Ended::Revoked), None));
    assert_eq!(ann.ended().now_or_never(), Some(Ended::Revoked));
    assert_eq!(ben.ended().now_or_never(), None);
    assert_eq!(house.enter("ann").err(), Some(Ended::Revoked));
}

#[tokio::test]
async fn what_another_policy_forbids_ends_and_what_it_allows_goes_on() {
    let house = House::new();
    let (ann, ben) = (house.enter("ann").unwrap(), house.enter("ben").unwrap());
    house.policy.replace(rules(&["ben"]));

    house.table.look(Cause::Change).await;

    assert_eq!((ann.end(), ben.end()), (Some(Ended::PolicyChanged), None));
}

#[tokio::test]
async fn a_permit_of_an_earlier_policy_is_judged_by_the_one_in_force_when_its_exchange_begins() {
    let house = House::new();
    let permit = house.permit("ann");
    house.policy.replace(rules(&["ben"]));

    assert_eq!(house.table.enter(&permit).err(), Some(Ended::PolicyChanged));
    assert_eq!(house.count(), 0);
}

#[tokio::test]
async fn what_the_labels_of_a_cluster_allowed_ends_with_them() {
    let house = House::new();
    let edge = "edge-a".parse::<ClusterId>().unwrap();
    let label = |value: &str| ClusterSpecUpdate {
        set_labels: vec![("stage".to_owned(), value.to_owned())].into_iter().collect(),
        ..ClusterSpecUpdate::default()
    };
    house.directory.create_cluster(edge.clone(), label("test"), UNIX_EPOCH).await.unwrap();
    house.policy.replace(parsed(
        &rule("ann").replace("names: ['*']", "labelSelector: { matchLabels: { stage: test } }"),
    ));
    let ann = house.enter("ann").unwrap();

    house.directory.update_cluster(edge, label("live")).await.unwrap();
    house.table.look(Cause::Change).await;

    assert_eq!(ann.end(), Some(Ended::PolicyChanged));
}

#[tokio::test]
async fn what_runs_by_a_token_ends_when_the_token_is_gone_or_is_somebody_elses() {
    let prefixes = || Prefixes { username: "token:".to_owned(), groups: "token:".to_owned() };
    let line = |token: &str, user: &str| format!("{},{user},1\n", TokenDigest::of(token.as_bytes()));
    let parsed = |file: String| StaticTokens::parse(file.as_bytes(), prefixes()).unwrap();
    let [ann, ben, cid] = ["ann", "ben", "cid"].map(|user| line(&format!("{user}s"), user));
    let book = SharedTokens::new(parsed(format!("{ann}{ben}{cid}")));
    let ways = AuthMethods { tokens: Some(book.clone()), ..AuthMethods::default() };
    let authenticator = Authenticator::new("tombolo".to_owned(), ways);
    let house = House::asking(DAY, authenticator.clone());
    house.policy.replace(rules(&["token:ann", "token:ben", "token:cid"]));
    let enter = async |token: &str| {
        let authorization = http::HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        let headers: http::HeaderMap = [(http::header::AUTHORIZATION, authorization)].into_iter().collect();
        let known = authenticator.authenticate(None, &headers, SystemTime::now()).await.unwrap();
        house.table.enter(&house.permit_of(known.claimed()))
    };
    let (ann_runs, ben_runs, cid_runs) =
        (enter("anns").await.unwrap(), enter("bens").await.unwrap(), enter("cids").await.unwrap());

    // A line moves, one goes, and one names another holder now.
    let changes = async {
        book.replace(parsed(format!("{}{}", line("cids", "ann"), line("anns", "ann"))));
        assert_eq!(ben_runs.ended().await, Ended::Revoked);
        assert_eq!(cid_runs.ended().await, Ended::Revoked);
    };
    tokio::select! {
        () = house.table.clone().keep() => panic!("it keeps on"),
        () = changes => {}
    }
    assert_eq!(ann_runs.end(), None);
    assert!(enter("anns").await.is_ok());
}

#[tokio::test]
async fn time_alone_ends_what_has_run_for_too_long() {
    let house = House::of(Duration::ZERO);
    assert_eq!(house.enter("ann").err(), Some(Ended::TooOld));
    let house = House::new();
    let ann = house.enter("ann").unwrap();
    house.table.look(Cause::Time).await;
    assert_eq!(ann.end(), None);
}

#[tokio::test]
async fn an_exchange_stands_in_the_table_until_the_last_of_it_is_gone() {
    let house = House::new();
    let ann = house.enter("ann").unwrap();
    let also_ann = ann.clone();
    drop(ann);
    assert_eq!(house.count(), 1);
    drop(also_ann);
    assert_eq!(house.count(), 0);
}

#[tokio::test]
async fn the_keeper_sees_each_change() {
    let house = House::new();
    let (ann, ben) = (house.enter("ann").unwrap(), house.enter("ben").unwrap());
    let changes = async {
        house.revoke("ann").await;
        assert_eq!(ann.ended().await, Ended::Revoked);
        house.policy.replace(rules(&["ann"]));
        assert_eq!(ben.ended().await, Ended::PolicyChanged);
    };
    tokio::select! {
        () = house.table.clone().keep() => panic!("it keeps on"),
        () = changes => {}
    }
}

/// A table with a directory and a policy that lets ann and ben do everything.
struct House {
    table: Table,
    directory: Directory,
    policy: Policy,
    _state: tempfile::TempDir,
}

impl House {
    fn new() -> Self {
        Self::of(DAY)
    }

    fn of(age_max: Duration) -> Self {
        Self::asking(age_max, Authenticator::new("tombolo".to_owned(), AuthMethods::default()))
    }

    fn asking(age_max: Duration, authenticator: Authenticator) -> Self {
        let state = tempfile::tempdir().unwrap();
        let directory =
            Directory::open(&daemon::StateDir::open(&state.path().join("state")).unwrap()).unwrap();
        let policy = Policy::new(rules(&["ann", "ben"]));
        let table =
            Table::new(directory.clone(), policy.clone(), Delegation::default(), authenticator, age_max);
        Self { table, directory, policy, _state: state }
    }

    fn permit(&self, user: &str) -> Permit {
        self.permit_of(&Caller::for_test(user, &[]))
    }

    fn permit_of(&self, caller: &Caller) -> Permit {
        let cluster = "edge-a".parse().unwrap();
        let action = Action::of_cluster(cluster, &Method::GET, "/api/v1/pods", None).unwrap();
        let facts = ClusterFacts { labels: self.directory.labels(action.cluster()) };
        self.policy.edition().authorize(caller, None, action, &facts).unwrap().unasked()
    }

    fn enter(&self, user: &str) -> Result<Live, Ended> {
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

/// A policy that lets these do everything everywhere.
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
    let whole = format!("apiVersion: tombolo.dev/v1alpha1\nkind: Policy\nrules:\n{rules}");
    let document = daemon::config::parse(&whole, "policy.yaml".as_ref(), policy::KIND).unwrap();
    Rules::of(&document).unwrap()
}
