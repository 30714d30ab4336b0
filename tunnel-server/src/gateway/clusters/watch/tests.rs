//! Claims about watches of the list of clusters.

use std::sync::{Mutex, PoisonError};

use futures::{FutureExt as _, StreamExt as _};
use policy::Rules;

use super::super::view::tests::view;
use super::*;
use crate::authz::Policy;

/// The clusters of a server, and the signals of their changes.
struct ListedClusters {
    clusters: Arc<Mutex<Vec<Arc<ClusterView>>>>,
    registry: watch::Sender<()>,
    directory: watch::Sender<()>,
    policy: Policy,
    scope: Scope,
}

/// The pieces of a watch.
type ListEvents = std::pin::Pin<Box<dyn Stream<Item = Bytes> + Send>>;

impl ListedClusters {
    fn new(clusters: Vec<ClusterView>) -> Self {
        let this = Self {
            clusters: Arc::default(),
            registry: watch::Sender::new(()),
            directory: watch::Sender::new(()),
            policy: Policy::new(Rules::default()),
            scope: Scope::here(),
        };
        this.become_without_signal(clusters);
        this
    }

    fn become_without_signal(&self, clusters: Vec<ClusterView>) {
        *self.clusters.lock().unwrap_or_else(PoisonError::into_inner) =
            clusters.into_iter().map(Arc::new).collect();
    }

    fn become_these(&self, clusters: Vec<ClusterView>) {
        self.become_without_signal(clusters);
        self.registry.send_replace(());
    }

    fn watch(&self, accepted: Accepted, read: &ListRead) -> ListEvents {
        let signals = Signals {
            registry: self.registry.subscribe(),
            directory: self.directory.subscribe(),
            policy: self.policy.subscribe(),
            scope: self.scope.clone(),
        };
        let clusters = Arc::clone(&self.clusters);
        let look = move |_| clusters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(ListWatch::new(look, signals, accepted, read, Instant::now()).events())
    }

    fn objects(&self) -> ListEvents {
        self.watch(Accepted::Json, &ListRead::default())
    }
}

/// The next events, each as its type, the cluster's name, and whether it is connected.
async fn next(events: &mut ListEvents) -> Vec<(String, String, bool)> {
    let piece = events.next().await.expect("the watch goes on");
    let lines = std::str::from_utf8(&piece).unwrap().lines();
    lines
        .map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let object = &event["object"];
            let connected = object["status"]["connected"].as_bool().unwrap();
            (text(&event["type"]), text(&object["metadata"]["name"]), connected)
        })
        .collect()
}

fn event(kind: &str, name: &str, connected: bool) -> (String, String, bool) {
    (kind.to_owned(), name.to_owned(), connected)
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_with_all_and_follows_each_change() {
    let fleet = ListedClusters::new(vec![view("a", "live", true, 1), view("b", "live", true, 1)]);
    let mut events = fleet.objects();
    assert_eq!(next(&mut events).await, [event("ADDED", "a", true), event("ADDED", "b", true)]);
    assert!(events.next().now_or_never().is_none(), "nothing has changed");

    fleet.become_these(vec![
        view("a", "live", false, 1),
        view("b", "live", true, 9),
        view("c", "live", true, 9),
    ]);
    assert_eq!(next(&mut events).await, [event("MODIFIED", "a", false), event("ADDED", "c", true)]);

    fleet.become_these(vec![view("a", "live", true, 9), view("c", "live", true, 9)]);
    assert_eq!(next(&mut events).await, [event("DELETED", "b", true), event("MODIFIED", "a", true)]);
}

#[tokio::test(start_paused = true)]
async fn many_changes_within_a_second_are_one_event() {
    let fleet = ListedClusters::new(vec![view("a", "live", true, 1)]);
    let mut events = fleet.objects();
    next(&mut events).await;
    let began = Instant::now();
    for round in 1..=3_u32 {
        for step in 0..5 {
            fleet.become_these(vec![view("a", "live", step % 2 == 1, 1)]);
            assert!(events.next().now_or_never().is_none(), "it waits for the second to pass");
        }
        let last = round % 2 == 0;
        fleet.become_these(vec![view("a", "live", last, 1)]);
        assert_eq!(next(&mut events).await, [event("MODIFIED", "a", last)]);
        assert!(began.elapsed() >= COALESCE_FOR * round, "round {round}: {:?}", began.elapsed());
    }
    // All that was in between came to nothing.
    fleet.become_these(vec![view("a", "live", true, 1)]);
    fleet.become_these(vec![view("a", "live", false, 1)]);
    let quiet = tokio::time::timeout(COALESCE_FOR * 10, events.next()).await;
    assert!(quiet.is_err(), "nothing has changed in the end");
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_change_makes_a_watch_look_again() {
    let fleet = ListedClusters::new(vec![view("a", "live", true, 1)]);
    let mut events = fleet.objects();
    next(&mut events).await;

    fleet.become_without_signal(vec![view("a", "test", true, 1)]);
    fleet.directory.send_replace(());
    assert_eq!(next(&mut events).await, [event("MODIFIED", "a", true)]);

    fleet.become_without_signal(Vec::new());
    fleet.policy.replace(Rules::default());
    assert_eq!(next(&mut events).await, [event("DELETED", "a", true)]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_time_and_with_the_server() {
    let fleet = ListedClusters::new(Vec::new());
    let began = Instant::now();
    let mut short = fleet.watch(Accepted::Json, &read("timeoutSeconds=7&watch=1"));
    assert!(short.next().await.is_none());
    assert_eq!(began.elapsed(), Duration::from_secs(7));

    let mut long = fleet.objects();
    assert!(long.next().now_or_never().is_none());
    fleet.scope.begin_drain();
    assert!(long.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn only_the_first_table_of_a_watch_has_columns() {
    let fleet = ListedClusters::new(vec![view("a", "live", true, 1), view("b", "live", true, 1)]);
    let mut events = fleet.watch(Accepted::TableV1, &read("watch=1&includeObject=Object"));
    let piece = events.next().await.unwrap();
    let tables: Vec<Value> = std::str::from_utf8(&piece)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let columns = |table: &Value| table["object"]["columnDefinitions"].as_array().unwrap().len();
    assert_eq!(tables.iter().map(columns).collect::<Vec<_>>(), [6, 0]);
    assert_eq!(tables[1]["object"]["rows"][0]["cells"][0], "b");
    assert_eq!(tables[1]["object"]["rows"][0]["object"]["kind"], "Cluster");
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_cut_into_pieces_of_whole_events() {
    let all: Vec<ClusterView> =
        (0..1000).map(|number| view(&format!("c{number}"), "live", true, 1)).collect();
    let fleet = ListedClusters::new(all);
    let mut events = fleet.objects();
    let (mut count, mut pieces) = (0, 0);
    while count < 1000 {
        count += next(&mut events).await.len();
        pieces += 1;
    }
    assert!(count == 1000 && pieces > 1, "{pieces}");
}

/// A read of the list with these parameters.
fn read(query: &str) -> ListRead {
    use http::{Method, Request, Version};
    use policy::action::{Action, GatewayNames, Head, ParsedRequest};

    let request = Request::get(format!("/clusters?{query}")).header("host", "gateway").body(()).unwrap();
    let (uri, headers) = (request.uri(), request.headers());
    let head = Head::from_request(None, Version::HTTP_11, &Method::GET, uri, headers, None).unwrap();
    match Action::parse(&GatewayNames::default(), &head).unwrap() {
        ParsedRequest::ClusterList(read) => read,
        other @ (ParsedRequest::Cluster(_) | ParsedRequest::ClusterSet(_)) => panic!("{other:?}"),
    }
}
