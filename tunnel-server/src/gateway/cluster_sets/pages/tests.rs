//! Claims about pages over random fleets, whose clusters fail at random.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use tokio::time::Duration;

use super::*;

/// Objects of one cluster, by their names.
struct Objects {
    names: Vec<String>,
    next: Option<String>,
}

impl Part for Objects {
    fn len(&self) -> u64 {
        self.names.len() as u64
    }

    fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }
}

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// The number of objects of each cluster.
type Sizes = BTreeMap<ClusterId, u64>;

fn fleet(random: &mut Random) -> Sizes {
    let clusters = 1 + random.below(60);
    let name = |number| format!("c{number:03}").parse().unwrap();
    (0..clusters)
        .map(|number| (name(number), [0, 1, 3, 12, 70][usize::try_from(random.below(5)).unwrap()]))
        .collect()
}

/// A cluster's own page, as an API server makes it.
fn answer(cluster: &ClusterId, count: u64, limit: Option<u64>, token: Option<String>) -> Outcome<Objects> {
    let from: u64 = token.map_or(0, |token| token.parse().unwrap());
    let to = limit.map_or(count, |limit| count.min(from + limit));
    let names = (from..to).map(|number| format!("{cluster}/{number}")).collect();
    Outcome::Fresh(Objects { names, next: (to < count).then(|| to.to_string()) })
}

/// Reads all pages. Returns every object, the clusters that were named as failed, and the size of each page.
fn read_all(
    fleet: &Sizes,
    limit: Option<u64>,
    random: &RefCell<Random>,
    failing: u64,
) -> (Vec<String>, BTreeSet<ClusterId>, Vec<u64>) {
    let (mut objects, mut failed, mut sizes) = (Vec::new(), BTreeSet::new(), Vec::new());
    let clusters: Vec<ClusterId> = fleet.keys().cloned().collect();
    let mut position: Option<(ClusterId, Option<String>)> = None;
    loop {
        let from = position
            .as_ref()
            .map_or(0, |(cluster, _)| clusters.iter().position(|own| own == cluster).unwrap());
        let first = position.take().and_then(|(cluster, token)| Some((cluster.to_string(), token?)));
        let pages = Pages { limit, deadline: Instant::now() + Duration::from_secs(5), first };
        let ask = |_, cluster: ClusterId, limit, token| {
            let outcome = if failing > 0 && random.borrow_mut().below(failing) == 0 {
                Outcome::failed("Timeout", "late")
            } else {
                answer(&cluster, fleet[&cluster], limit, token)
            };
            std::future::ready(outcome)
        };
        let page = pages.read(&clusters[from..], ask).now_or_never().expect("nobody waits");
        sizes.push(0);
        for member in page.members {
            match member.outcome {
                Outcome::Fresh(part) => {
                    *sizes.last_mut().unwrap() += part.len();
                    objects.extend(part.names);
                }
                Outcome::Failed(_) => drop(failed.insert(member.cluster)),
                Outcome::Absent => {}
            }
        }
        position = page.next;
        if position.is_none() {
            return (objects, failed, sizes);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_object_is_lost_or_seen_twice_in_random_fleets() {
    for seed in 0..500 {
        let mut random = Random(seed);
        let fleet = fleet(&mut random);
        let limit =
            [None, Some(1), Some(2), Some(7), Some(50), Some(500)][usize::try_from(random.below(6)).unwrap()];
        let failing = [0, 0, 40, 5][usize::try_from(random.below(4)).unwrap()];
        let (objects, failed, sizes) = read_all(&fleet, limit, &RefCell::new(random), failing);

        let mut sorted = objects.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), objects.len(), "seed {seed}: an object twice");
        let found: BTreeSet<&String> = objects.iter().collect();
        for (cluster, count) in fleet.iter().filter(|(cluster, _)| !failed.contains(cluster)) {
            for number in 0..*count {
                let name = format!("{cluster}/{number}");
                assert!(found.contains(&name), "seed {seed}: {name} is lost, and its cluster is not named");
            }
        }
        let names: Vec<&str> = objects.iter().map(|name| name.split_once('/').unwrap().0).collect();
        assert!(names.is_sorted(), "seed {seed}: clusters out of order");
        if let Some(limit) = limit {
            assert!(sizes.iter().all(|size| *size <= limit), "seed {seed}: {sizes:?} beyond {limit}");
        }
        assert!(failing > 0 || failed.is_empty(), "seed {seed}");
    }
}

/// An API server that ignores the limit, as some extension servers do.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_knows_no_pages_is_passed_whole() {
    let clusters: Vec<ClusterId> = ["a", "b"].map(|name| name.parse().unwrap()).to_vec();
    let pages = Pages { limit: Some(3), deadline: Instant::now() + Duration::from_secs(5), first: None };
    let page = pages.read(&clusters, |_, cluster, _, _| std::future::ready(answer(&cluster, 10, None, None)));
    let page = page.await;
    assert_eq!(page.members.len(), 1);
    assert_eq!(page.next, Some(("b".parse().unwrap(), None)));
}

#[tokio::test(start_paused = true)]
async fn a_page_ends_at_its_deadline_and_the_next_one_goes_on() {
    let clusters: Vec<ClusterId> = (0..20).map(|number| format!("c{number:02}").parse().unwrap()).collect();
    let deadline = Instant::now() + Duration::from_secs(5);
    let pages = Pages { limit: Some(500), deadline, first: None };
    let ask = |_, cluster: ClusterId, limit, token| async move {
        tokio::time::sleep_until(deadline).await;
        answer(&cluster, 1, limit, token)
    };
    let page = pages.read(&clusters, ask).await;
    assert_eq!(Instant::now(), deadline);
    assert_eq!(page.members.len(), WINDOW_FIRST);
    assert_eq!(page.next, Some((clusters[WINDOW_FIRST].clone(), None)));
}

#[tokio::test(start_paused = true)]
async fn no_more_clusters_than_the_limit_are_asked_at_once() {
    let clusters: Vec<ClusterId> = (0..200).map(|number| format!("c{number:03}").parse().unwrap()).collect();
    let (running, most) = (RefCell::new(0_usize), RefCell::new(0_usize));
    let ask = |_, _| async {
        *running.borrow_mut() += 1;
        let now = *running.borrow();
        let known = *most.borrow();
        *most.borrow_mut() = known.max(now);
        tokio::time::sleep(Duration::from_millis(1)).await;
        *running.borrow_mut() -= 1;
        Outcome::Fresh(())
    };
    let members = all(&clusters, ask).await;
    assert_eq!(members.len(), 200);
    assert_eq!(*most.borrow(), CLUSTERS_AT_ONCE_MAX);
    assert!(members.iter().map(|member| &member.cluster).eq(&clusters));
}
