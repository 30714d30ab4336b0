//! A stopping agent hands its watches over to another one as soon as there is one, and not at the end of its
//! drain.

use rustix::process::Signal;
use tests::check::watch_report::WatchReport;
use tests::fake_api::HttpVersion;
use tests::rig::{Agent, ApiServer};

use super::SOON;
use super::site::Site;

/// The agents' identities and their drain time, which is longer than any test.
const MORE: &str = "impersonation: { users: [\"*\"], groups: [\"*\"] }\nadvertise: [\"192.168.1.10:6443\"]\ndrainGraceSeconds: 600";

/// The stopping agent does not wait for its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_moves_from_a_stopping_agent_to_another_one() {
    let mut site = Site::start(HttpVersion::Http2, "").await;
    let store = site.store();
    store.put("a", "1");
    let mut leaving = alone(&mut site, "first").await;
    let (mut reflector, mut watch) = site.reflect("").await;
    let (_, mut other) = site.reflect("").await;
    store.put("b", "1");
    watch.until("\"b\"").await;
    let _staying = started(&site, "second").await;
    assert_eq!(site.asked().await.len(), 2, "each stays where it is as long as its agent does");

    leaving.process.signal(Signal::TERM).expect("the agent runs");
    let ended = leaving.process.wait(SOON).await.expect("the agent ends");

    assert_eq!(ended.code(), Some(0), "everything that ran was finished");
    let last = store.put("c", "1").to_string();
    watch.until(&last).await;
    other.until(&last).await;
    reflector.take(&watch.take());
    assert!(WatchReport::of(&reflector, &store.emitted()).is_right());
    assert_eq!((site.asked().await.len(), site.resumed().await), (4, 2.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_only_agent_keeps_its_watches_until_another_one_connects() {
    let mut site = Site::start(HttpVersion::Http2, "").await;
    let store = site.store();
    store.put("a", "1");
    let mut leaving = alone(&mut site, "first").await;
    let (mut reflector, mut watch) = site.reflect("").await;

    leaving.process.signal(Signal::TERM).expect("the agent runs");
    site.edge.rig.logged("server.log", 0, "the agent is stopping").await;
    store.put("b", "1");
    watch.until("\"b\"").await;
    assert_eq!((site.asked().await.len(), site.parked().await), (1, 0.0), "it flows where it was");

    let _next = started(&site, "second").await;
    let ended = leaving.process.wait(SOON).await.expect("the agent ends");

    assert_eq!(ended.code(), Some(0), "everything that ran was finished");
    let last = store.put("c", "1").to_string();
    watch.until(&last).await;
    reflector.take(&watch.take());
    assert!(WatchReport::of(&reflector, &store.emitted()).is_right());
    assert_eq!((site.asked().await.len(), site.resumed().await), (2, 1.0));
}

/// Starts an agent in place of the site's own.
async fn alone(site: &mut Site, id: &str) -> Agent {
    let agent = started(site, id).await;
    site.edge.agent.process.signal(Signal::TERM).expect("the agent runs");
    site.edge.agent.process.wait(SOON).await.expect("the agent ends");
    agent
}

/// Starts one more agent, which is there.
async fn started(site: &Site, id: &str) -> Agent {
    let (rig, fake) = (&site.edge.rig, &site.edge.fake);
    let agent = rig.agent_of_id("edge-a", id, &ApiServer::of_fake(rig, fake), MORE).await;
    rig.logged("server.log", 0, &format!("tunnel opened agent=edge-a/{id}")).await;
    agent
}
