//! Whom a cluster is told that a caller is: nobody whom the server's own allow-list for that cluster does not have, or nobody
//! at all.

use std::sync::Arc;

use proto::allow_list::{AllowList, NotAssertable};
use proto::wire::http_open::Identity;
use proto::wire::{Assert, PassThrough};
use proto::{ClusterId, glob};

use crate::config::{AskedAs, ClusterRules};
use crate::identity::Caller;

/// How groups begin that Kubernetes gives by itself, to whom it knows in its own way.
const SYSTEM: &str = "system:";

/// The allow-lists of all clusters. Clones are the same.
#[derive(Debug, Clone)]
pub struct Assertions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rules: Vec<ClusterRules>,
    /// For clusters that no rule is about.
    otherwise: AskedAs,
}

/// The cluster may not be told that the caller is who it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{user:?} may not be asserted at the cluster {cluster}: {cause}; ask the operator of this server for an entry in \
     clusters[].impersonation"
)]
pub struct NotAsserted {
    /// Who asked.
    pub user: String,
    /// Where.
    pub cluster: ClusterId,
    /// Why not.
    pub cause: NotAssertable,
}

impl Assertions {
    /// By these rules, of which the first that is about a cluster holds; where none is, names under `tombolo:` alone.
    #[must_use]
    pub fn new(rules: Vec<ClusterRules>) -> Self {
        Self(Arc::new(Inner { rules, otherwise: AskedAs::Asserted(AllowList::default()) }))
    }

    /// Whether `cluster` is told of nobody, because its callers' own credentials pass through to its API server.
    #[must_use]
    pub fn pass_through(&self, cluster: &ClusterId) -> bool {
        matches!(self.asked_as(cluster), AskedAs::PassedThrough)
    }

    /// On whose behalf `cluster` is asked for `caller`, whom its agent is to assert: its name, and its groups without those of Kubernetes' own,
    /// which whoever has authenticated it elsewhere may have added and which mean nothing in another cluster. One that
    /// the list names stays. An identity that the caller has `assumed` takes the place of its own, whole.
    /// Where credentials [pass through](Self::pass_through) nobody is asserted.
    ///
    /// # Errors
    ///
    /// The cluster's list does not have the user or one of the groups.
    pub fn of(
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

    fn asked_as(&self, cluster: &ClusterId) -> &AskedAs {
        let mut rules = self.0.rules.iter();
        let rule = rules.find(|rule| glob::matches(&rule.pattern, cluster.as_str()));
        rule.map_or(&self.0.otherwise, |rule| &rule.asked_as)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_is_about_a_cluster_says_who_may_be_asserted_there() {
        let rules =
            vec![rule("edge-a", &["ann"], &[]), rule("edge-*", &["bob"], &[]), rule("*", &["*"], &[])];
        let assertions = Assertions::new(rules);

        for (cluster, user, may) in [
            ("edge-a", "ann", true),
            ("edge-a", "bob", false),
            ("edge-b", "bob", true),
            ("edge-b", "ann", false),
            ("x", "ann", true),
        ] {
            let of = assertions.of(&Caller::for_test(user, &[]), None, &cluster.parse().unwrap());
            assert_eq!(of.is_ok(), may, "{user} at {cluster}: {of:?}");
        }
    }

    #[test]
    fn where_no_rule_is_about_a_cluster_only_names_of_ours_are_asserted() {
        let assertions = Assertions::new(Vec::new());
        let cluster: ClusterId = "edge-a".parse().unwrap();

        assert!(assertions.of(&Caller::for_test("tombolo:ann", &["tombolo:dev"]), None, &cluster).is_ok());
        assert!(assertions.of(&Caller::for_test("ann", &["tombolo:dev"]), None, &cluster).is_err());
        assert!(assertions.of(&Caller::for_test("tombolo:ann", &["dev"]), None, &cluster).is_err());
    }

    #[test]
    fn groups_of_kubernetes_own_are_left_out_unless_the_list_names_them() {
        let assertions = Assertions::new(vec![rule("edge-a", &["ann"], &["system:monitoring"])]);
        let groups =
            ["system:authenticated", "tombolo:dev", "system:masters", "system:monitoring", "system:nodes"];

        let ann = Caller::for_test("ann", &groups);
        let asserted = assertions.of(&ann, None, &"edge-a".parse().unwrap()).unwrap();

        let groups = ["tombolo:dev", "system:monitoring"].map(str::to_owned).to_vec();
        assert_eq!(asserted, Assert { user: "ann".to_owned(), groups }.into());
    }

    #[test]
    fn a_group_that_the_list_does_not_have_refuses_the_whole_identity() {
        let assertions = Assertions::new(vec![rule("*", &["ann"], &[])]);
        let caller = Caller::for_test("ann", &["tombolo:dev", "kubeadm:cluster-admins"]);

        let refused = assertions.of(&caller, None, &"edge-a".parse().unwrap()).unwrap_err();

        assert!(refused.to_string().contains("kubeadm:cluster-admins"), "{refused}");
    }

    #[test]
    fn an_assumed_identity_is_asserted_whole_and_without_anything_of_the_callers_own() {
        let assertions = Assertions::new(vec![rule("*", &["bob"], &[])]);
        let (ann, cluster) = (Caller::for_test("ann", &["tombolo:dev"]), "edge-a".parse().unwrap());
        let assumed = |groups: &[&str]| Assert {
            user: "bob".to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        };

        for bob in [assumed(&[]), assumed(&["tombolo:ops"])] {
            assert_eq!(assertions.of(&ann, Some(&bob), &cluster), Ok(bob.into()));
        }
        // A caller who asks for it means it: nothing is left out of what it asks for.
        let refused = assertions.of(&ann, Some(&assumed(&["system:authenticated"])), &cluster).unwrap_err();
        assert_eq!(refused.user, "bob");
    }

    #[test]
    fn where_credentials_pass_through_nobody_is_asserted_and_elsewhere_none_passes() {
        let through = ClusterRules { pattern: "edge-p".to_owned(), asked_as: AskedAs::PassedThrough };
        let assertions = Assertions::new(vec![through, rule("edge-*", &["ann"], &[])]);
        let ann = Caller::for_test("ann", &[]);
        for (cluster, passes) in [("edge-p", true), ("edge-a", false), ("x", false)] {
            let cluster = cluster.parse().unwrap();
            let is_asserted = assertions.of(&ann, None, &cluster) != Ok(PassThrough {}.into());
            assert_eq!((assertions.pass_through(&cluster), is_asserted), (passes, !passes), "{cluster}");
        }
    }

    fn rule(pattern: &str, users: &[&str], system_names: &[&str]) -> ClusterRules {
        let owned = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        let impersonation = AllowList::new(owned(users), None, owned(system_names)).unwrap();
        ClusterRules { pattern: pattern.to_owned(), asked_as: AskedAs::Asserted(impersonation) }
    }
}
