//! One object by its name, which no cluster of a set has, or one, or several.

use bytes::Bytes;

use super::accepted::Accepted;
use super::answer::SetAnswer;
use super::error::{ClusterCauses, ClusterSetError};
use super::outcome::{Failure, Member, Outcome};
use super::question::Answered;
use super::report::Report;
use super::{list, object};

/// Makes the answer: a table of all that have the object, or the object of the only one that has it.
///
/// # Errors
/// Several clusters have it and the caller takes no table, or none has it, or somebody who may have it did not answer.
pub(super) fn merge(
    members: Vec<Member<Answered>>,
    accepted: Accepted,
) -> Result<SetAnswer, ClusterSetError> {
    let report = Report::of(&members);
    let has = |member: &&Member<Answered>| matches!(member.outcome, Outcome::Fresh(_));
    let count = members.iter().filter(has).count();
    if count == 0 {
        // Without all answers nobody knows that it is nowhere.
        return Err(if report.failed() > 0 { report.nobody() } else { ClusterSetError::Absent });
    }
    if accepted.is_table() {
        let parts =
            members.into_iter().map(|member| member.and_then(|answered| list::parse(answered, accepted)));
        return list::merge(parts.collect(), accepted, None, |_| None);
    }
    if count > 1 {
        let said =
            || Failure { reason: "Found".to_owned(), message: "has an object of this name".to_owned() };
        let named = members.iter().filter(has).map(|member| (member.cluster.clone(), said()));
        return Err(ClusterSetError::InSeveral(ClusterCauses::new(named.collect())));
    }
    let mut body = Vec::new();
    for Member { cluster, outcome, .. } in members {
        if let Outcome::Fresh(Answered { body: found, .. }) = outcome {
            object::write(&found, &cluster, &mut body);
        }
    }
    Ok(SetAnswer::json(Bytes::from(body), accepted, report))
}
