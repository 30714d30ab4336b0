//! The order in which clusters are asked: all at once, up to a limit, or page by page.

use futures::StreamExt as _;
use futures::stream::{self, FuturesOrdered};
use proto::ClusterId;
use tokio::time::Instant;

use super::outcome::{Member, Outcome};

/// Most clusters that one read asks at once.
pub(super) const CLUSTERS_AT_ONCE_MAX: usize = 64;

/// Clusters that a page asks at first. The number doubles until the page is full.
const WINDOW_FIRST: usize = 4;

/// Clusters that are asked at once for a document that every one of them has.
const DOCUMENTS_AT_ONCE: usize = 4;

/// A part of a list: one cluster's.
pub(super) trait Part {
    /// The number of its objects.
    fn len(&self) -> u64;
    /// The cluster's own token, if it has more of them.
    fn next(&self) -> Option<&str>;
}

/// The wishes for a page.
pub(super) struct Pages {
    /// The most objects of a page. Without it, all is one page.
    pub(super) limit: Option<u64>,
    /// The time at which a page ends, whatever it has.
    pub(super) deadline: Instant,
    /// The cluster that was not asked to its end by the page before, with its own token.
    pub(super) first: Option<(String, String)>,
}

/// A page: the outcomes of the clusters that it passed, in their order.
pub(super) struct Page<T> {
    pub(super) members: Vec<Member<T>>,
    /// The cluster with which the next page begins, and its own token.
    pub(super) next: Option<(ClusterId, Option<String>)>,
}

/// Asks all clusters, and returns their outcomes in the order of `clusters`.
pub(super) async fn all<T, F>(clusters: &[ClusterId], ask: impl Fn(usize, ClusterId) -> F) -> Vec<Member<T>>
where
    F: Future<Output = Outcome<T>>,
{
    stream::iter(questions(clusters, ask)).buffered(CLUSTERS_AT_ONCE_MAX).collect().await
}

/// Asks some clusters at a time until one has answered. Returns its answer and the outcomes until then.
pub(super) async fn first<T, F>(
    clusters: &[ClusterId],
    ask: impl Fn(usize, ClusterId) -> F,
) -> (Option<T>, Vec<Member<()>>)
where
    F: Future<Output = Outcome<T>>,
{
    let mut asked = stream::iter(questions(clusters, ask)).buffer_unordered(DOCUMENTS_AT_ONCE);
    let mut members = Vec::new();
    while let Some(member) = asked.next().await {
        members.push(member.without_answer());
        if let Outcome::Fresh(found) = member.outcome {
            return (Some(found), members);
        }
    }
    (None, members)
}

/// The questions to these clusters, each with its number.
fn questions<T, F: Future<Output = Outcome<T>>>(
    clusters: &[ClusterId],
    ask: impl Fn(usize, ClusterId) -> F,
) -> impl Iterator<Item = impl Future<Output = Member<T>>> {
    clusters.iter().cloned().enumerate().map(move |(number, cluster)| {
        let asked = ask(number, cluster.clone());
        async { Member::new(cluster, asked.await) }
    })
}

impl Pages {
    /// Asks `clusters`, which are in the order of their names, for a page. `ask` gets the number of the question, the cluster, the most
    /// objects that it is to answer with, and its own token.
    pub(super) async fn read<T: Part, F>(
        self,
        clusters: &[ClusterId],
        ask: impl Fn(usize, ClusterId, Option<u64>, Option<String>) -> F,
    ) -> Page<T>
    where
        F: Future<Output = Outcome<T>>,
    {
        let Self { limit, deadline, first } = self;
        let token_of = |cluster: &ClusterId| {
            first.as_ref().filter(|(own, _)| own == cluster.as_str()).map(|(_, token)| token.clone())
        };
        let Some(limit) = limit else {
            let members = all(clusters, |number, cluster| {
                let token = token_of(&cluster);
                ask(number, cluster, None, token)
            });
            return Page { members: members.await, next: None };
        };
        let (mut members, mut left, mut questions, mut window) = (Vec::new(), limit, 0, WINDOW_FIRST);
        let mut rest = clusters;
        while !rest.is_empty() && left > 0 && (members.is_empty() || Instant::now() < deadline) {
            let (batch, _) = rest.split_at(window.min(rest.len()));
            let mut asked: FuturesOrdered<_> = batch
                .iter()
                .map(|cluster| {
                    questions += 1;
                    ask(questions - 1, cluster.clone(), Some(left), token_of(cluster))
                })
                .collect();
            let most = left;
            for cluster in batch {
                let Some(mut outcome) = asked.next().await else { break };
                // It was asked for what was left before the others of its batch answered.
                if let Outcome::Fresh(part) = &outcome
                    && part.len() > left
                    && left < most
                {
                    questions += 1;
                    outcome = ask(questions - 1, cluster.clone(), Some(left), token_of(cluster)).await;
                }
                rest = &rest[1..];
                let mut next = None;
                if let Outcome::Fresh(part) = &outcome {
                    left = left.saturating_sub(part.len());
                    next = part.next().map(|token| (cluster.clone(), Some(token.to_owned())));
                }
                members.push(Member::new(cluster.clone(), outcome));
                if next.is_some() {
                    return Page { members, next };
                }
                if left == 0 {
                    break;
                }
            }
            window = (window * 2).min(CLUSTERS_AT_ONCE_MAX);
        }
        Page { members, next: rest.first().map(|cluster| (cluster.clone(), None)) }
    }
}

#[cfg(test)]
mod tests;
