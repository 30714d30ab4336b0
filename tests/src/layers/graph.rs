//! Finds the circles of a directed graph.

use std::collections::{BTreeMap, BTreeSet};

/// The strongly connected components of more than one node: each node of a circle reaches every other one.
pub fn circles<N: Ord + Copy>(edges: &BTreeSet<(N, N)>) -> Vec<BTreeSet<N>> {
    let nodes: BTreeSet<N> = edges.iter().flat_map(|(from, to)| [*from, *to]).collect();
    let reached: BTreeMap<N, BTreeSet<N>> = nodes.iter().map(|node| (*node, reach(edges, *node))).collect();
    let mut circles = BTreeSet::new();
    for node in &nodes {
        let circle: BTreeSet<N> =
            reached[node].iter().copied().filter(|other| reached[other].contains(node)).collect();
        if !circle.is_empty() {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reach<N: Ord + Copy>(edges: &BTreeSet<(N, N)>, from: N) -> BTreeSet<N> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for (_, to) in edges.iter().filter(|(start, _)| *start == node) {
            if found.insert(*to) {
                open.push(*to);
            }
        }
    }
    found
}
