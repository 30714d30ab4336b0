//! The choice between servers, in virtual time.

use super::*;
use crate::dialer::rendezvous::MOVES_SPREAD;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_agent_without_a_list_dials_the_configured_names_as_ever() {
    let mut trial = Trial::new(2);
    let plan = trial.plan(&[("x", true)]);
    assert_eq!(plan, Plan { names: true, ..Plan::default() });
}

#[test]
fn a_single_server_is_dialed_by_its_name_until_that_leads_nowhere() {
    let mut trial = Trial::new(2);
    trial.list(&["a"]);
    let plan = trial.plan(&[("a", true)]);
    assert_eq!(plan, Plan { names: true, ..Plan::default() });

    trial.plan(&[]);
    assert!(trial.after(SILENT_MAX - SECOND, &[]).dialed.is_empty());
    let plan = trial.after(SECOND, &[]);
    assert_eq!((ids(&plan), plan.names), (vec!["a".to_owned()], true));
}

#[test]
fn two_of_three_servers_are_dialed_in_the_order_of_the_agent() {
    let mut trial = Trial::new(2);
    let [first, second, third] = trial.three();
    let plan = trial.plan(&[(&third, true)]);
    assert_eq!((ids(&plan), plan.names), (vec![first.clone(), second.clone()], false));
    assert_eq!(plan.kept, None, "the third serves until both others do");

    let plan = trial.plan(&[(&third, true), (&first, true)]);
    assert_eq!(plan.kept, None);
    let plan = trial.plan(&[(&third, true), (&first, true), (&second, true)]);
    assert_eq!(plan.kept, Some(Arc::new(BTreeSet::from([first, second]))));
}

#[test]
fn a_server_that_is_silent_beside_another_is_replaced_after_ten_seconds() {
    let mut trial = Trial::new(2);
    let [first, second, third] = trial.three();
    trial.plan(&[(&first, true), (&second, true)]);

    assert_eq!(ids(&trial.after(SILENT_MAX - SECOND, &[(&second, true)])), [&*first, &*second]);
    let plan = trial.after(SECOND, &[(&second, true)]);

    assert_eq!(ids(&plan), [&*first, &*second, &*third]);
    assert_eq!(trial.choice.take_replaced(), std::slice::from_ref(&first));
    let plan = trial.plan(&[(&second, true), (&third, true)]);
    assert!(plan.kept.is_some_and(|kept| kept.contains(&first)), "a silent tunnel is kept");
}

#[test]
fn nothing_is_replaced_while_all_servers_are_silent() {
    let mut trial = Trial::new(2);
    let [first, second, _] = trial.three();
    trial.plan(&[(&first, true), (&second, true)]);

    for _ in 0..60 {
        let plan = trial.after(SECOND, &[(&first, false), (&second, false)]);
        assert_eq!(ids(&plan), [&*first, &*second]);
    }
    // The link is back, and one of them is heard first.
    let plan = trial.after(SECOND, &[(&first, true), (&second, false)]);
    assert_eq!(ids(&plan), [&*first, &*second]);
    assert_eq!(trial.choice.take_replaced(), Vec::<String>::new());
}

#[test]
fn names_are_dialed_once_no_server_has_served_for_some_seconds() {
    let mut trial = Trial::new(2);
    let [first, second, _] = trial.three();
    assert!(!trial.plan(&[]).names, "the list comes first");
    assert!(trial.after(NAMES_AFTER, &[]).names);
    assert!(!trial.plan(&[(&first, true), (&second, false)]).names);
}

#[test]
fn a_replaced_server_that_serves_again_takes_over_after_its_delay() {
    let mut trial = Trial::new(2);
    let [first, second, third] = trial.three();
    trial.plan(&[(&first, true), (&second, true)]);
    trial.after(SILENT_MAX, &[(&second, true)]);
    let all = [(&*first, true), (&*second, true), (&*third, true)];
    let delay = move_delay(AGENT, &first);
    assert!(delay > SECOND, "choose another agent");

    trial.plan(&all);
    assert_eq!(ids(&trial.after(delay - SECOND, &all)), [&*first, &*second, &*third]);
    let plan = trial.after(SECOND, &all);

    assert_eq!(plan.kept, Some(Arc::new(BTreeSet::from([first, second]))));
}

#[test]
fn a_draining_server_is_kept_until_the_next_one_serves() {
    let mut trial = Trial::new(2);
    let [first, second, third] = trial.three();
    let both = [(&*first, true), (&*second, true)];
    trial.plan(&both);

    trial.list_with_draining(&["a", "b", "c"], Some(&first));

    let plan = trial.plan(&both);
    assert_eq!((ids(&plan), plan.kept), (vec![second.clone(), third.clone()], None));
    let plan = trial.plan(&[(&first, true), (&second, true), (&third, true)]);
    assert_eq!(plan.kept, Some(Arc::new(BTreeSet::from([second, third]))));
}

#[test]
fn a_server_that_comes_back_is_moved_to_within_five_minutes() {
    let mut trial = Trial::new(2);
    let [first, second, third] = trial.three();
    trial.plan(&[(&first, true), (&second, true)]);
    let others = [(&*second, true), (&*third, true)];
    trial.list_with_draining(&["a", "b", "c"], Some(&first));
    trial.plan(&others);

    trial.list(&["a", "b", "c"]);

    assert_eq!(ids(&trial.plan(&others)), [&*second, &*third]);
    let delay = move_delay(AGENT, &first);
    assert!(delay < MOVES_SPREAD);
    assert_eq!(ids(&trial.after(delay - SECOND, &others)), [&*second, &*third]);
    let plan = trial.after(SECOND, &others);
    assert_eq!((ids(&plan), plan.kept), (vec![first, second], None));
}

#[test]
fn a_new_server_is_dialed_at_once_where_there_are_too_few() {
    let mut trial = Trial::new(2);
    trial.list(&["a"]);
    trial.plan(&[("a", true)]);
    trial.list(&["a", "b"]);
    let plan = trial.plan(&[("a", true)]);
    assert_eq!(ids(&plan).iter().collect::<BTreeSet<_>>().len(), 2);
}

#[test]
fn servers_without_addresses_of_their_own_are_sought_behind_the_names() {
    let mut trial = Trial::new(2);
    for addresses in [vec![], vec!["gateway.example:8443".to_owned()]] {
        let server =
            |id: &str| ListedServer { id: id.to_owned(), addresses: addresses.clone(), is_draining: false };
        trial.choice.set_list(trial.now, &ServerList::new(1, ["a", "b", "c"].map(server)));
        let plan = trial.plan(&[("a", true)]);
        assert_eq!(plan, Plan { names: true, sought: 2, ..Plan::default() });
    }
}

#[test]
fn more_tunnels_than_servers_mean_one_to_each() {
    let mut trial = Trial::new(8);
    let [first, second, third] = trial.three();
    let plan = trial.plan(&[(&first, true), (&second, true), (&third, true)]);
    assert_eq!(ids(&plan), [&*first, &*second, &*third]);
    assert!(plan.kept.is_some());
}

const AGENT: &str = "edge-a/agent";

struct Trial {
    choice: ServerChoice,
    now: Instant,
    revision: i64,
}

impl Trial {
    fn new(tunnels: usize) -> Self {
        let now = Instant::now() + Duration::from_secs(3600);
        Self { choice: ServerChoice::new(now, AGENT.to_owned(), tunnels), now, revision: 0 }
    }

    /// Lists three servers, and returns them in the order of this agent.
    fn three(&mut self) -> [String; 3] {
        self.list(&["a", "b", "c"]);
        let mut order = ["a", "b", "c"].map(str::to_owned);
        order.sort_by_key(|server| Reverse(rank(AGENT, server)));
        order
    }

    fn list(&mut self, servers: &[&str]) {
        self.list_with_draining(servers, None);
    }

    fn list_with_draining(&mut self, servers: &[&str], draining: Option<&str>) {
        self.revision += 1;
        let server = |id: &&str| ListedServer {
            id: (*id).to_owned(),
            addresses: vec![format!("{id}.example:8443")],
            is_draining: draining == Some(*id),
        };
        self.choice.set_list(self.now, &ServerList::new(self.revision, servers.iter().map(server)));
    }

    fn plan(&mut self, connected: &[(&str, bool)]) -> Plan {
        let connected: Vec<ConnectedServer> = connected
            .iter()
            .map(|(id, serves)| ConnectedServer {
                id: (*id).to_owned(),
                serves: *serves,
                silence: if *serves { Duration::ZERO } else { Duration::from_secs(3600) },
            })
            .collect();
        self.choice.plan(self.now, &connected)
    }

    /// Looks every second, as the shell does.
    fn after(&mut self, time: Duration, connected: &[(&str, bool)]) -> Plan {
        let end = self.now + time;
        while self.now + SECOND < end {
            self.now += SECOND;
            self.plan(connected);
        }
        self.now = end;
        self.plan(connected)
    }
}

fn ids(plan: &Plan) -> Vec<String> {
    plan.dialed.iter().map(|server| server.id.clone()).collect()
}
