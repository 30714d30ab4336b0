//! Validates a raw document into rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use proto::cluster::is_dns_label;
use serde_saphyr::Spanned;

use super::clusters::Clusters;
use super::effect::Effect;
use super::lists::entries;
use super::rule::Rule;
use super::scope::Scope;
use super::subject::Subject;
use crate::document::{self, Document, RULES_MAX};
use crate::error::{DocumentError, FieldPath};

/// Validates all rules of `document`; their names must differ.
pub(super) fn rules(document: &Document) -> Result<Vec<Rule>, DocumentError> {
    let at = FieldPath::new("rules", &document.rules);
    let raw = &document.rules.value;
    if raw.is_empty() || raw.len() > RULES_MAX {
        let allowed = format!("1 to {RULES_MAX} rules; what no rule allows is forbidden");
        return Err(at.invalid(format_args!("{} rules", raw.len()), allowed));
    }
    let mut names = BTreeSet::new();
    let rule = |(index, raw): (usize, &Spanned<document::RawRule>)| {
        let at = at.index(index, raw);
        let rule = rule(&at, &raw.value)?;
        if !names.insert(Arc::clone(&rule.name)) {
            let allowed = "a name of its own, since a rule's name says what decided";
            return Err(at.invalid(format_args!("the name {:?} a second time", rule.name), allowed));
        }
        Ok(rule)
    };
    raw.iter().enumerate().map(rule).collect()
}

fn rule(at: &FieldPath, raw: &document::RawRule) -> Result<Rule, DocumentError> {
    let document::RawRule { name, effect, subjects, clusters, .. } = raw;
    let labels = "a name of 1 to 63 lower-case letters, digits and '-'";
    let name = name.as_ref().ok_or_else(|| at.required("name", labels))?;
    if !is_dns_label(&name.value) {
        return Err(at.child("name", name).invalid(format_args!("{:?}", name.value), labels));
    }
    let effect = effect.as_ref().ok_or_else(|| at.required("effect", Effect::ALLOWED))?;
    let subjects = subjects.as_ref().ok_or_else(|| at.required("subjects", "at least one subject"))?;
    let clusters =
        clusters.as_ref().ok_or_else(|| at.required("clusters", "names, labelSelector or both"))?;
    Ok(Rule {
        name: name.value.as_str().into(),
        effect: Effect::parse(&effect.value).ok_or_else(|| {
            at.child("effect", effect).invalid(format_args!("{:?}", effect.value), Effect::ALLOWED)
        })?,
        subjects: entries(&at.child("subjects", subjects), &subjects.value, Subject::validate)?,
        clusters: Clusters::validate(&at.child("clusters", clusters), &clusters.value)?,
        scope: Scope::validate(at, raw)?,
    })
}
