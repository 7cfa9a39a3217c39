//! Tests of profiles drafted from nodes without Octavo's labels.

use super::draft::{drafted, selection};
use super::*;

/// A node with eight devices of a type that only the vendor's label names.
fn vendor(name: &str, product: &str) -> ClusterNode {
    let mut node = node(name, H200);
    node.labels = [("nvidia.com/gpu.product".to_owned(), product.to_owned())].into();
    node
}

#[test]
fn ac_003_nodes_without_agent_are_selected_by_vendor_label() {
    let all =
        [vendor("a", "NVIDIA-H200"), vendor("b", "NVIDIA-H200"), vendor("c", "NVIDIA-H200-NVL")];
    let cluster = snapshot(all.clone());
    let selects = |made: &Draft| made.profile.requirements().selector;
    let by = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let made = drafted(&selection(&["a"]), &cluster).unwrap();
    assert_eq!(selects(&made), by("nvidia.com/gpu.product", "NVIDIA-H200"));
    assert_eq!(made.nodes, ["a"]);
    let notes: Vec<String> = made.notes.iter().map(ToString::to_string).collect();
    assert!(notes[0].contains("selects by nvidia.com/gpu.product=NVIDIA-H200"), "{notes:?}");
    assert!(notes[1].starts_with("one more node has the type"), "{notes:?}");

    // A selector cannot contain two labels: the one with most nodes is used.
    let of_type =
        DraftRequest { type_name: Some(H200.parse().unwrap()), ..DraftRequest::default() };
    let made = drafted(&of_type, &cluster).unwrap();
    assert_eq!(made.nodes, ["a", "b"]);
    let notes: Vec<String> = made.notes.iter().map(ToString::to_string).collect();
    assert!(
        notes.iter().any(|note| note.starts_with("c is excluded: its label differs")),
        "{notes:?}"
    );

    // Where an agent has labeled one node, Octavo's label stays the selector, and the others are excluded.
    let ours = all.into_iter().chain([node("d", H200)]);
    let made = drafted(&of_type, &snapshot(ours)).unwrap();
    assert_eq!(selects(&made), by(TYPE_LABEL, H200));
    assert_eq!(made.nodes, ["d"]);
    let left = made.notes.iter().filter(|note| matches!(note, DraftNote::UnlabeledNode(_)));
    assert_eq!(left.count(), 3);
}
