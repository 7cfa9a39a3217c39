//! Eviction from a full fleet.

use super::*;

#[test]
fn full_fleet_evicts_the_longest_stale_disconnected_node() {
    let mut world = World::new(3);
    let mut first = synced_agent(&mut world, "z");
    world.pass(1);
    let mut second = synced_agent(&mut world, "a");
    let third = synced_agent(&mut world, "b");
    world.disconnect(&mut second);
    world.disconnect(&mut first);
    world.pass(9_999);
    let refusal = world.connect(&mut Agent::new("new", 1)).unwrap_err();
    assert_eq!(refusal.label(), "too_many_nodes", "none is stale yet");
    world.pass(1);
    let new = synced_agent(&mut world, "new");
    assert!(world.node("z").is_none() && world.node("new").is_some());
    // A reconnected node is not evicted, however long it was away.
    world.pass(5000);
    world.connect(&mut second).unwrap();
    let refusal = world.connect(&mut Agent::new("z", 1)).unwrap_err();
    assert_eq!(refusal.label(), "too_many_nodes", "the others are connected");
    // A connection that has been silent for too long does not count.
    world.pass(30_001);
    let heartbeat = new.sender.heartbeat().unwrap();
    world.handle(&new, &heartbeat).unwrap();
    let heartbeat = second.sender.heartbeat().unwrap();
    world.handle(&second, &heartbeat).unwrap();
    world.store.sweep(world.now);
    synced_agent(&mut world, "z");
    assert!(world.node(&third.name).is_none());
    world.store.sweep(world.now);
    let mut registry = Registry::default();
    world.store.stats.register(&mut registry);
    let mut counted = String::new();
    encode(&mut counted, &registry).unwrap();
    assert!(!counted.contains("invariant=\""), "{counted}");
}
