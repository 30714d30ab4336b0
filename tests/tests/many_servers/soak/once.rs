//! Tokens that are used at three servers at once, and servers that start together, many times.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use daemon::Scope;
use futures::future::join_all;
use tests::etcd::EtcdCluster;
use tokio::time::sleep;
use tunnel_server::directory::{
    AddressError, AddressRange, Agent, ClusterSpecUpdate, Directory, TokenRefused, UnixSeconds,
};

use super::{ALONE, Spread};
use crate::directory::{STALE_LIMIT, TTL, agent, cluster, servers};

const TOKENS: usize = 1000;
const AGENTS: usize = 30;

/// The pause of an agent whose server could not reach etcd.
const PAUSE: Duration = Duration::from_millis(100);

const STARTS: usize = 100;
const CLUSTERS: usize = 60;
/// Most times that a server tries to assign addresses.
const TRIES_MAX: usize = 5;
/// Addresses for the clusters, and two that no cluster gets.
const RANGE: &str = "100.100.0.0/26";

/// Then the enrolled agent asks at every server again, as after a lost answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: 30 agents use each of a thousand tokens"]
async fn each_of_a_thousand_tokens_enrolls_one_agent() {
    let _alone = ALONE.lock().await;
    let (_etcd, servers) = servers().await;
    let mut took = Vec::new();
    for number in 0..TOKENS {
        let (now, began) = (SystemTime::now(), Instant::now());
        let name = cluster(&format!("edge-{number}"));
        servers[0].create_cluster(name.clone(), ClusterSpecUpdate::default(), now).await.unwrap();
        let (bearer, _) = servers[0].create_token(name.clone(), TTL, now).await.unwrap();
        let enroll = |server: &Directory, id: &str, key: &str| {
            let agent = Agent { expires: UnixSeconds::from(now) + TTL, ..agent(key) };
            let (server, names, bearer) = (server.clone(), (id.to_owned(), id.to_owned()), bearer.clone());
            // As an agent does whose server could not reach etcd: it asks again, with the same key.
            async move {
                loop {
                    let (bearer, names, agent) = (bearer.clone(), names.clone(), agent.clone());
                    match server.enroll(bearer, names, agent, None, now).await {
                        Err(TokenRefused::Store(_)) => sleep(PAUSE).await,
                        answered => return answered,
                    }
                }
            }
        };

        let ids: Vec<String> = (0..AGENTS).map(|agent| format!("agent-{agent}")).collect();
        let all = ids.iter().enumerate().map(|(at, id)| enroll(&servers[at % servers.len()], id, id));
        let all = join_all(all).await;

        let enrolled: Vec<_> = ids.iter().zip(&all).filter(|(_, answer)| answer.is_ok()).collect();
        let [(winner, Ok(chain))] = enrolled.as_slice() else { panic!("{number}: {enrolled:?}") };
        let refused = |answer: &Result<_, _>| matches!(answer, Err(TokenRefused::Used));
        assert_eq!(all.iter().filter(|answer| refused(*answer)).count(), AGENTS - 1, "{number}: {all:?}");
        for server in &servers {
            let again = enroll(server, winner, "another").await;
            assert_eq!(again.as_ref().ok(), Some(chain), "{number}: one key has one answer");
        }
        assert_eq!(servers[2].agents(Some(name)).await.unwrap().len(), 1, "{number}");
        took.push(began.elapsed());
    }
    println!(
        "soak tokens: {TOKENS} tokens, {AGENTS} agents each at 3 servers: one certificate each, one answer to one key; a round takes {}",
        Spread::of(took)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: three servers start together a hundred times"]
async fn a_hundred_times_three_servers_hand_out_no_address_twice() {
    let _alone = ALONE.lock().await;
    let etcd = EtcdCluster::start().await;
    let (mut took, mut tries) = (Vec::new(), 0);
    for number in 0..STARTS {
        let (began, scope) = (Instant::now(), Scope::here());
        let open = || {
            let prefix = format!("/tombolo/round-{number}/");
            Directory::open_shared(etcd.client(&scope), prefix, STALE_LIMIT, scope.clone())
        };
        let start = async || {
            let clusters = (0..CLUSTERS).map(|number| cluster(&format!("edge-{number}"))).collect();
            let range = AddressRange { network: RANGE.parse().unwrap(), clusters };
            let server = open().await.expect("etcd answers");
            // A server whose change has an unknown outcome begins again, and must find what it has assigned.
            for tries in 1.. {
                match server.assign_addresses(vec![range.clone()], SystemTime::now()).await {
                    Ok(assigned) => return (assigned, tries),
                    Err(AddressError::Store(_)) if tries < TRIES_MAX => {}
                    Err(error) => panic!("{number}: {error}"),
                }
            }
            unreachable!("the tries are bounded")
        };

        let (one, two, three) = tokio::join!(start(), start(), start());

        let ((one, first_tries), (two, second_tries), (three, third_tries)) = (one, two, three);
        tries += first_tries + second_tries + third_tries - 3;
        let addresses: BTreeSet<_> = one.values().map(|given| given.address).collect();
        assert_eq!((one.len(), addresses.len()), (CLUSTERS, CLUSTERS), "{number}");
        for other in [two, three] {
            let differs = one.iter().find(|(name, given)| other[*name].address != given.address);
            assert!(differs.is_none(), "{number}: {differs:?}");
        }
        scope.abort();
        took.push(began.elapsed());
    }
    println!(
        "soak addresses: {STARTS} times 3 servers started together gave {CLUSTERS} clusters one address each; {tries} tries had no answer of etcd in time; {}",
        Spread::of(took)
    );
}
