//! From what was written to what is valid.

use std::collections::BTreeSet;
use std::sync::Arc;

use proto::cluster::is_dns_label;
use serde_saphyr::Spanned;

use super::clusters::Clusters;
use super::lists::entries;
use super::scope::Scope;
use super::subject::Subject;
use super::{Effect, RULES_MAX, Rule};
use crate::document::{self, Document};
use crate::fault::{At, PolicyFault};

pub(super) fn rules(document: &Document) -> Result<Vec<Rule>, PolicyFault> {
    let at = At::of("rules", &document.rules);
    let written = &document.rules.value;
    if written.is_empty() || written.len() > RULES_MAX {
        let allowed = format!("1 to {RULES_MAX} rules; what no rule allows is forbidden");
        return Err(at.fault(format_args!("{} rules", written.len()), allowed));
    }
    let mut names = BTreeSet::new();
    let rule = |(index, written): (usize, &Spanned<document::Rule>)| {
        let at = at.entry(index, written);
        let rule = rule(&at, &written.value)?;
        if !names.insert(Arc::clone(&rule.name)) {
            let allowed = "a name of its own, since a rule's name says what decided";
            return Err(at.fault(format_args!("the name {:?} a second time", rule.name), allowed));
        }
        Ok(rule)
    };
    written.iter().enumerate().map(rule).collect()
}

fn rule(at: &At, written: &document::Rule) -> Result<Rule, PolicyFault> {
    let document::Rule { name, effect, subjects, clusters, .. } = written;
    let labels = "a name of 1 to 63 lower-case letters, digits and '-'";
    let name = name.as_ref().ok_or_else(|| at.missing("name", labels))?;
    if !is_dns_label(&name.value) {
        return Err(at.below("name", name).fault(format_args!("{:?}", name.value), labels));
    }
    let effects = "Allow or Deny";
    let effect = effect.as_ref().ok_or_else(|| at.missing("effect", effects))?;
    let subjects = subjects.as_ref().ok_or_else(|| at.missing("subjects", "at least one subject"))?;
    let clusters = clusters.as_ref().ok_or_else(|| at.missing("clusters", "names, labelSelector or both"))?;
    Ok(Rule {
        name: name.value.as_str().into(),
        effect: match effect.value.as_str() {
            "Allow" => Effect::Allow,
            "Deny" => Effect::Deny,
            other => return Err(at.below("effect", effect).fault(format_args!("{other:?}"), effects)),
        },
        subjects: entries(&at.below("subjects", subjects), &subjects.value, Subject::of)?,
        clusters: Clusters::of(&at.below("clusters", clusters), &clusters.value)?,
        scope: Scope::of(at, written)?,
    })
}
