//! Tests of the limits on data from the cluster.

use super::*;

#[test]
fn requested_rows_never_displace_node_rows() {
    let mut greedy = pod("greedy", None, GPU, 1);
    for number in 0..3000 {
        greedy.requirements.amounts =
            greedy.requirements.amounts.with(&format!("amd.com/x{number}"), 1);
    }
    let selects = ("octavo.dev/type".to_owned(), "a-a".to_owned());
    greedy.requirements.selector = BTreeMap::from([selects]);
    let h200 = node("node-a", &[("octavo.dev/type", "nvidia-h200-141gb")], 8);
    let availability = counted(&[], Some(&snapshot(vec![h200], vec![greedy])));
    let is_there = |row: &Row| row.nodes == 1 && row.free == 8;
    assert!(availability.rows.iter().any(is_there));
    assert!(availability.rows.len() < 300 && availability.omitted_rows > 2000);
}

#[test]
fn units_held_after_plugin_removal_count_once() {
    let mut bare = node("node-a", &[], 8);
    for all in [&mut bare.capacity, &mut bare.allocatable] {
        *all = Amounts::default().with("pods", 110);
    }
    let seen = seen(&[("nvidia-h200-141gb", GPU, 8)]);
    let holds = pod("holds", Some("node-a"), GPU, 3);
    let snapshot = snapshot(vec![bare], vec![holds]);
    let availability = counted(&[agent("node-a", &seen)], Some(&snapshot));
    assert_eq!(
        lines(&availability),
        ["nvidia-h200-141gb nvidia.com/gpu device: 0/8 taken 3 free 0 plugin-missing 5"]
    );
    assert_eq!(availability.rows[0].nodes, 1);
}

#[test]
fn rows_are_limited_and_omissions_counted() {
    let nodes = (0..MAX_ROWS + 5).map(|number| {
        let name = format!("node-{number}");
        node(&name, &[(TYPE, &format!("nvidia-x{number}-1gb"))], 1)
    });
    let counted = counted(&[], Some(&snapshot(nodes.collect(), Vec::new())));
    assert_eq!((counted.rows.len(), counted.omitted_rows), (MAX_ROWS, 5));
}
