//! The identity that a cluster sees for each caller. The server's allow-list of that cluster must contain it.

use std::sync::Arc;
use std::time::Duration;

use proto::allow_list::{AllowList, NotAssertable};
use proto::deadlines::API_SERVER_HEAD_MAX;
use proto::wire::http_open::Identity;
use proto::wire::{Assert, PassThrough};
use proto::{ClusterId, glob};

use crate::config::{AskedAs, ClusterRules};
use crate::identity::Caller;

/// The prefix of groups that Kubernetes itself assigns to the users that it authenticates.
const SYSTEM: &str = "system:";

/// The allow-lists of all clusters. Clones share one list.
#[derive(Debug, Clone)]
pub struct ImpersonationRules(Arc<SharedRules>);

#[derive(Debug)]
struct SharedRules {
    rules: Vec<ClusterRules>,
    /// The rule for clusters that no configured rule matches.
    otherwise: AskedAs,
}

/// The server's allow-list of the cluster does not contain this identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{user:?} may not be impersonated at the cluster {cluster}: {cause}; ask the operator of this server for an entry in \
     clusters[].impersonation"
)]
pub struct NotAsserted {
    /// The name of the user that was to be impersonated.
    pub user: String,
    /// The cluster that the request is for.
    pub cluster: ClusterId,
    /// The part of the identity that the list does not contain.
    pub cause: NotAssertable,
}

impl ImpersonationRules {
    /// Creates the rules from the configuration. The first rule that matches a cluster applies. A cluster
    /// without a rule accepts names under `tombolo:` only.
    #[must_use]
    pub fn new(rules: Vec<ClusterRules>) -> Self {
        Self(Arc::new(SharedRules { rules, otherwise: AskedAs::Asserted(AllowList::default()) }))
    }

    /// Returns true if callers' own credentials pass through to the API server of `cluster`, so that nobody
    /// is impersonated there.
    #[must_use]
    pub fn pass_through(&self, cluster: &ClusterId) -> bool {
        matches!(self.asked_as(cluster), AskedAs::PassedThrough)
    }

    /// The identity that the agent of `cluster` is to impersonate for `caller`: its name and its groups,
    /// without Kubernetes' own groups. Those may come from the authenticator of another cluster and mean
    /// nothing here. The allow-list can keep one by naming it. An identity that the caller has `assumed`
    /// replaces its own completely. Where credentials [pass through](Self::pass_through) nobody is
    /// impersonated.
    ///
    /// # Errors
    ///
    /// [`NotAsserted`] if the cluster's list does not contain the user or one of the groups.
    pub fn identity_for(
        &self,
        caller: &Caller,
        assumed: Option<&Assert>,
        cluster: &ClusterId,
    ) -> Result<Identity, NotAsserted> {
        let list = match self.asked_as(cluster) {
            AskedAs::Asserted(list) => list,
            AskedAs::PassedThrough => return Ok(PassThrough {}.into()),
        };
        let own = || {
            let stays = |group: &&String| !group.starts_with(SYSTEM) || list.system_names().contains(group);
            let groups = caller.groups().iter().filter(stays).cloned().collect();
            Assert { user: caller.user().to_owned(), groups }
        };
        let identity = assumed.cloned().unwrap_or_else(own);
        match list.check(&identity) {
            Ok(_) => Ok(identity.into()),
            Err(cause) => Err(NotAsserted { user: identity.user, cluster: cluster.clone(), cause }),
        }
    }

    /// The longest time that the API server of `cluster` may take until the head of its answer.
    #[must_use]
    pub fn request_timeout(&self, cluster: &ClusterId) -> Duration {
        self.rule(cluster).map_or(API_SERVER_HEAD_MAX, |rule| rule.request_timeout)
    }

    fn asked_as(&self, cluster: &ClusterId) -> &AskedAs {
        self.rule(cluster).map_or(&self.0.otherwise, |rule| &rule.asked_as)
    }

    fn rule(&self, cluster: &ClusterId) -> Option<&ClusterRules> {
        self.0.rules.iter().find(|rule| glob::matches(&rule.pattern, cluster.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_a_cluster_applies() {
        let rules =
            vec![rule("edge-a", &["ann"], &[]), rule("edge-*", &["bob"], &[]), rule("*", &["*"], &[])];
        let rules = ImpersonationRules::new(rules);

        for (cluster, user, may) in [
            ("edge-a", "ann", true),
            ("edge-a", "bob", false),
            ("edge-b", "bob", true),
            ("edge-b", "ann", false),
            ("x", "ann", true),
        ] {
            let of = rules.identity_for(&Caller::for_test(user, &[]), None, &cluster.parse().unwrap());
            assert_eq!(of.is_ok(), may, "{user} at {cluster}: {of:?}");
        }
    }

    #[test]
    fn a_cluster_without_a_rule_accepts_only_our_own_names() {
        let rules = ImpersonationRules::new(Vec::new());
        let cluster: ClusterId = "edge-a".parse().unwrap();

        assert!(
            rules.identity_for(&Caller::for_test("tombolo:ann", &["tombolo:dev"]), None, &cluster).is_ok()
        );
        assert!(rules.identity_for(&Caller::for_test("ann", &["tombolo:dev"]), None, &cluster).is_err());
        assert!(rules.identity_for(&Caller::for_test("tombolo:ann", &["dev"]), None, &cluster).is_err());
    }

    #[test]
    fn kubernetes_own_groups_are_dropped_unless_the_list_names_them() {
        let rules = ImpersonationRules::new(vec![rule("edge-a", &["ann"], &["system:monitoring"])]);
        let groups =
            ["system:authenticated", "tombolo:dev", "system:masters", "system:monitoring", "system:nodes"];

        let ann = Caller::for_test("ann", &groups);
        let asserted = rules.identity_for(&ann, None, &"edge-a".parse().unwrap()).unwrap();

        let groups = ["tombolo:dev", "system:monitoring"].map(str::to_owned).to_vec();
        assert_eq!(asserted, Assert { user: "ann".to_owned(), groups }.into());
    }

    #[test]
    fn a_group_outside_the_list_refuses_the_whole_identity() {
        let rules = ImpersonationRules::new(vec![rule("*", &["ann"], &[])]);
        let caller = Caller::for_test("ann", &["tombolo:dev", "kubeadm:cluster-admins"]);

        let refused = rules.identity_for(&caller, None, &"edge-a".parse().unwrap()).unwrap_err();

        assert!(refused.to_string().contains("kubeadm:cluster-admins"), "{refused}");
    }

    #[test]
    fn an_assumed_identity_replaces_the_callers_own_completely() {
        let rules = ImpersonationRules::new(vec![rule("*", &["bob"], &[])]);
        let (ann, cluster) = (Caller::for_test("ann", &["tombolo:dev"]), "edge-a".parse().unwrap());
        let assumed = |groups: &[&str]| Assert {
            user: "bob".to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        };

        for bob in [assumed(&[]), assumed(&["tombolo:ops"])] {
            assert_eq!(rules.identity_for(&ann, Some(&bob), &cluster), Ok(bob.into()));
        }
        // An identity that the caller asks for explicitly is never changed.
        let refused =
            rules.identity_for(&ann, Some(&assumed(&["system:authenticated"])), &cluster).unwrap_err();
        assert_eq!(refused.user, "bob");
    }

    #[test]
    fn credentials_pass_through_or_an_identity_is_asserted_never_both() {
        let through = ClusterRules { asked_as: AskedAs::PassedThrough, ..rule("edge-p", &[], &[]) };
        let rules = ImpersonationRules::new(vec![through, rule("edge-*", &["ann"], &[])]);
        let ann = Caller::for_test("ann", &[]);
        for (cluster, passes) in [("edge-p", true), ("edge-a", false), ("x", false)] {
            let cluster = cluster.parse().unwrap();
            let is_asserted = rules.identity_for(&ann, None, &cluster) != Ok(PassThrough {}.into());
            assert_eq!((rules.pass_through(&cluster), is_asserted), (passes, !passes), "{cluster}");
        }
    }

    #[test]
    fn a_cluster_has_the_request_timeout_of_its_first_rule_or_the_default() {
        let slow = ClusterRules { request_timeout: Duration::from_secs(300), ..rule("slow-*", &[], &[]) };
        let rules = ImpersonationRules::new(vec![slow, rule("*-a", &[], &[])]);
        for (cluster, seconds) in [("slow-a", 300), ("edge-a", 75), ("x", 75)] {
            assert_eq!(rules.request_timeout(&cluster.parse().unwrap()).as_secs(), seconds, "{cluster}");
        }
    }

    fn rule(pattern: &str, users: &[&str], system_names: &[&str]) -> ClusterRules {
        let owned = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        let impersonation = AllowList::new(owned(users), None, owned(system_names)).unwrap();
        let asked_as = AskedAs::Asserted(impersonation);
        ClusterRules { pattern: pattern.to_owned(), asked_as, request_timeout: API_SERVER_HEAD_MAX }
    }
}
