//! Both programs, the same configuration, the same machine: where NVIDIA's says the truth, ours comes to the same.

use super::node::Node;

#[test]
fn x() {
    let node = Node::new("  - {board: A100_40GB, count: 2}\n");
    let config = node
        .config("  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 2, 3g.20gb: 1}}\n");
    for a in [
        ["assert", "-f", &config].as_slice(),
        &["apply", "-f", &config],
        &["assert", "-f", &config],
        &["export"],
        &["checkpoint", "-f", "/tmp/cp.json"],
    ] {
        println!("theirs {:#?}", node.theirs(a));
    }
    println!("{:?} {:?}", node.geometry(), node.resets());
    let node = Node::new("  - {board: A100_40GB, count: 2}\n");
    let config = node
        .config("  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 2, 3g.20gb: 1}}\n");
    for a in [
        ["assert", "-f", &config].as_slice(),
        &["apply", "-f", &config],
        &["assert", "-f", &config],
        &["export"],
    ] {
        println!("ours {:#?}", node.ours(a));
    }
    println!("{:?} {:?}", node.geometry(), node.resets());
    panic!();
}
