//! Warns of an agent's credential that may do more than the agent needs, by a SelfSubjectRulesReview.

use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::check::Check;
use super::report::Report;
use crate::https::HttpsConnection;

/// The path for a list of one's own rights.
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// The namespace whose rules are listed beside those of the whole cluster. Rights in it are rights over the control plane.
const NAMESPACE: &str = "kube-system";

const CHECK: Check = Check::ExcessRights;
const ADVICE: &str = "give the agent a ServiceAccount of its own, with the rights that `tombolo rbac` prints for its configuration";

/// The words about somebody who may do everything.
pub(super) const EVERYTHING: &str = "do everything, as cluster-admin may";

/// Begins the verbs of constrained impersonation, which are for every resource, and give the agent itself nothing.
const ACTS: &str = "impersonate-on:";

/// The parts of a SelfSubjectRulesReview that count here.
#[derive(Deserialize)]
struct RulesReview {
    status: RulesStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RulesStatus {
    resource_rules: Vec<ResourceRule>,
    /// True if an authorizer of the API server cannot list its rules.
    incomplete: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ResourceRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// The rights beyond the agent's needs.
pub(super) enum Excess {
    /// They are reported as a warning.
    Dangerous,
    /// There are none, which is reported.
    None,
    /// None are listed, and an authorizer of the API server lists no rules, as that of a cloud does. Nothing is reported.
    Incomplete,
    /// The rules could not be listed, which is reported as a warning.
    Unknown,
}

/// A right that no profile of `tombolo rbac` gives, and that makes the agent's credential worth stealing.
struct Power {
    verbs: &'static [&'static str],
    group: &'static str,
    resources: &'static [&'static str],
    words: &'static str,
}

const POWERS: &[Power] = &[
    Power { verbs: &["get", "list", "watch"], group: "", resources: &["secrets"], words: "read Secrets" },
    Power { verbs: &["create"], group: "", resources: &["pods"], words: "create pods" },
    Power {
        verbs: &["create", "get"],
        group: "",
        resources: &["pods/exec", "pods/attach"],
        words: "run commands in pods",
    },
    Power {
        verbs: &["create"],
        group: "",
        resources: &["serviceaccounts/token"],
        words: "create tokens of ServiceAccounts",
    },
    Power {
        verbs: &["get", "create"],
        group: "",
        resources: &["nodes/proxy"],
        words: "reach kubelets (nodes/proxy)",
    },
    Power {
        verbs: &["bind", "escalate"],
        group: "rbac.authorization.k8s.io",
        resources: &["roles", "clusterroles"],
        words: "give itself any right (bind, escalate)",
    },
];

/// Reports rights beyond the agent's needs, as far as the API server lists the rules of the credential.
pub(super) async fn check(
    allows_anybody: bool,
    connection: &mut HttpsConnection,
    prefix: &str,
    report: &mut Report,
) -> Excess {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": { "namespace": NAMESPACE },
    });
    let response = connection.send(Method::POST, &format!("{prefix}{RULES}"), Some(review.to_string())).await;
    let review = response.map_err(|error| error.to_string()).and_then(|response| {
        let review = serde_json::from_slice::<RulesReview>(&response.body);
        review
            .ok()
            .filter(|_| matches!(response.status, 200 | 201))
            .ok_or_else(|| format!("status {}", response.status))
    });
    let RulesStatus { resource_rules, incomplete } = match review {
        Ok(review) => review.status,
        Err(reason) => {
            let found =
                format!("whether the credential may do more than the agent needs is not known ({reason})");
            report.warn(CHECK, found, "compare the rules of its account with the output of `tombolo rbac`");
            return Excess::Unknown;
        }
    };
    let powers = powers(&resource_rules, allows_anybody);
    if !powers.is_empty() {
        report_powers(report, &powers);
        return Excess::Dangerous;
    }
    if incomplete {
        return Excess::Incomplete;
    }
    report_none(report);
    Excess::None
}

/// Reports dangerous rights, given in words.
pub(super) fn report_powers(report: &mut Report, powers: &[&str]) {
    let found = format!(
        "the credential may {}: the agent does not need that, and anybody who steals the credential has it",
        powers.join(", ")
    );
    report.warn(CHECK, found, ADVICE);
}

/// Reports that there is no dangerous right.
pub(super) fn report_none(report: &mut Report) {
    report.ok(CHECK, "the credential may do nothing dangerous beyond the agent's needs");
}

/// The dangerous rights among these rules, in words.
fn powers(rules: &[ResourceRule], allows_anybody: bool) -> Vec<&'static str> {
    let unnamed = || rules.iter().filter(|rule| rule.resource_names.is_empty());
    let is_everything = |rule: &ResourceRule| {
        [&rule.verbs, &rule.api_groups, &rule.resources]
            .iter()
            .all(|list| list.iter().any(|entry| entry == "*"))
    };
    if unnamed().any(is_everything) {
        return vec![EVERYTHING];
    }
    let found = POWERS.iter().filter(|power| unnamed().any(|rule| rule.grants(power)));
    let mut words: Vec<&'static str> = found.map(|power| power.words).collect();
    let anybody = Power {
        verbs: &["impersonate"],
        group: "",
        resources: &["users", "groups", "serviceaccounts"],
        words: "impersonate anybody, although `impersonation` lists names",
    };
    if !allows_anybody && unnamed().any(|rule| rule.grants(&anybody)) {
        words.push(anybody.words);
    }
    words
}

impl ResourceRule {
    fn grants(&self, power: &Power) -> bool {
        let verb =
            |verb: &String| !verb.starts_with(ACTS) && (verb == "*" || power.verbs.contains(&verb.as_str()));
        let group = |group: &String| group == "*" || group == power.group;
        let resource = |resource: &String| {
            // "*/exec" is that subresource of every resource.
            let is_subresource = |wanted: &&str| {
                let sub = resource.strip_prefix('*').filter(|sub| sub.starts_with('/'));
                sub.is_some_and(|sub| wanted.ends_with(sub))
            };
            resource == "*"
                || power.resources.contains(&resource.as_str())
                || power.resources.iter().any(is_subresource)
        };
        self.verbs.iter().any(verb)
            && self.api_groups.iter().any(group)
            && self.resources.iter().any(resource)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn rules(rules: Value) -> Vec<ResourceRule> {
        serde_json::from_value(rules).unwrap()
    }

    /// The rules are those of the three profiles, and of every authenticated user.
    #[test]
    fn the_rights_that_tombolo_rbac_prints_are_not_too_many() {
        let own = rules(json!([
            { "verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews"] },
            { "verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"] },
            { "verbs": ["impersonate:user-info"], "apiGroups": ["authentication.k8s.io"], "resources": ["users"] },
            { "verbs": ["impersonate-on:user-info:get", "impersonate-on:user-info:create"], "apiGroups": ["*"],
              "resources": ["*"] },
            { "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["tunnel-agent"] },
            { "verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods", "services"] },
        ]));
        assert!(powers(&own, false).is_empty());
        let open = rules(json!([
            { "verbs": ["impersonate"], "apiGroups": [""], "resources": ["users", "groups"] },
        ]));
        assert!(powers(&open, true).is_empty());
        assert_eq!(powers(&open, false), ["impersonate anybody, although `impersonation` lists names"]);
    }

    #[test]
    fn a_credential_that_is_worth_stealing_is_described() {
        for (rule, words) in [
            (json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }), "do everything"),
            (json!({ "verbs": ["list"], "apiGroups": [""], "resources": ["secrets"] }), "read Secrets"),
            (json!({ "verbs": ["get"], "apiGroups": ["*"], "resources": ["*"] }), "read Secrets"),
            (json!({ "verbs": ["create"], "apiGroups": [""], "resources": ["pods"] }), "create pods"),
            (json!({ "verbs": ["*"], "apiGroups": [""], "resources": ["*/exec"] }), "run commands"),
            (
                json!({ "verbs": ["create"], "apiGroups": [""], "resources": ["serviceaccounts/token"] }),
                "tokens",
            ),
            (
                json!({ "verbs": ["escalate"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"] }),
                "any right",
            ),
        ] {
            let found = powers(&rules(json!([rule])), true).join(", ");
            assert!(found.contains(words), "{words}: {found}");
        }
    }
}
