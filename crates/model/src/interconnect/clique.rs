//! Maximum clique of a graph, by branch and bound on bit sets.
//!
//! Each step colors the candidates greedily (linked nodes get different colors). A clique has at most as many nodes
//! as there are colors, so a branch that cannot exceed the best clique found so far is pruned. On the graphs of real
//! machines the first descent already finds the maximum. Source: Tomita and Seki, "An Efficient Branch-and-bound
//! Algorithm for Finding a Maximum Clique".

/// Size of the maximum clique of a graph with at most 64 nodes, given as the neighbors of each node.
pub(super) fn max_clique_size(linked: &[u64]) -> usize {
    let all = (0..linked.len().min(64)).fold(0_u64, |all, node| all | (1 << node));
    let mut best = 0;
    expand(linked, all, 0, &mut best);
    best
}

/// Positions of the set bits.
pub(super) fn bits(set: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |node| set & (1 << node) != 0)
}

fn expand(linked: &[u64], candidates: u64, size: usize, best: &mut usize) {
    *best = size.max(*best);
    let mut left = candidates;
    for (node, colours) in colored(linked, candidates).into_iter().rev() {
        if size + colours <= *best {
            return;
        }
        left &= !(1 << node);
        expand(linked, left & neighbors(linked, node), size + 1, best);
    }
}

/// Candidates ordered by color, each with the number of colors used so far.
fn colored(linked: &[u64], candidates: u64) -> Vec<(usize, usize)> {
    let mut order = Vec::new();
    let mut left = candidates;
    let mut colours = 0;
    while left != 0 {
        colours += 1;
        let mut open = left;
        while open != 0 {
            let node = open.trailing_zeros() as usize;
            open &= !(1 << node) & !neighbors(linked, node);
            left &= !(1 << node);
            order.push((node, colours));
        }
    }
    order
}

fn neighbors(linked: &[u64], node: usize) -> u64 {
    linked.get(node).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference implementation that tests every subset.
    fn by_brute_force(linked: &[u64]) -> usize {
        (0_u64..1 << linked.len())
            .filter(|set| bits(*set).all(|node| set & !(1 << node) & !linked[node] == 0))
            .map(|set| set.count_ones() as usize)
            .max()
            .unwrap()
    }

    fn graph(nodes: usize, edges: &[bool]) -> Vec<u64> {
        let mut linked = vec![0; nodes];
        let pairs = (0..nodes).flat_map(|a| (0..a).map(move |b| (a, b)));
        for ((a, b), _) in pairs.zip(edges).filter(|(_, edge)| **edge) {
            linked[a] |= 1 << b;
            linked[b] |= 1 << a;
        }
        linked
    }

    #[test]
    fn known_graphs_have_their_clique_numbers() {
        assert_eq!(max_clique_size(&[]), 0);
        assert_eq!(max_clique_size(&[0]), 1);
        assert_eq!(max_clique_size(&graph(64, &[true; 2016])), 64);
        // Moon–Moser graph: 64 nodes in groups of three, each linked with all nodes outside of its group. It has the
        // largest possible number of maximal cliques, so a search without pruning does not finish.
        let moon_moser: Vec<bool> =
            (0..64).flat_map(|a| (0..a).map(move |b| a / 3 != b / 3)).collect();
        assert_eq!(max_clique_size(&graph(64, &moon_moser)), 22);
    }

    proptest! {
        #[test]
        fn search_equals_brute_force(
            nodes in 1_usize..11,
            edges in proptest::collection::vec(any::<bool>(), 55),
        ) {
            let linked = graph(nodes, &edges);
            prop_assert_eq!(max_clique_size(&linked), by_brute_force(&linked));
        }
    }
}
