//! Hanging or missing drivers, recurring faults, and error storms.

use super::*;

#[test]
fn stalled_driver_keeps_health_for_two_minutes() {
    let mut node = Node::new();
    node.lose(0);
    node.read(5, &[]);
    node.inventory.nvml = stalled();
    node.read(10, &[]);
    assert_eq!(node.fit(), [false, true, true]);
    assert_eq!(node.monitor.again(), Some(Duration::from_secs(130)));
    node.read(129, &[]);
    assert_eq!(node.fit(), [false, true, true]);
    node.read(130, &[]);
    assert_eq!(node.fit(), [false; 3]);
    assert_eq!(
        node.reason(&whole(2)),
        "NVML does not respond: nvmlDeviceGetMigMode does not return; it becomes healthy 10 s after NVML responds"
    );
    assert_eq!(node.monitor.again(), None);
    node.inventory.nvml = ready();
    node.read(500, &[]);
    node.read(510, &[]);
    assert_eq!(node.fit(), [false, true, true]);
}

#[test]
fn short_driver_stall_keeps_health() {
    let mut node = Node::new();
    for round in 0..10 {
        node.inventory.nvml = stalled();
        node.read(round * 200 + 10, &[]);
        node.read(round * 200 + 110, &[]);
        assert_eq!(node.fit(), [true; 3]);
        node.inventory.nvml = ready();
        node.read(round * 200 + 150, &[]);
        assert_eq!(node.fit(), [true; 3]);
    }
}

#[test]
fn faults_persist_while_driver_is_silent() {
    let mut node = Node::new();
    node.read(10, &[xid(0, 94)]);
    node.inventory.nvml = stalled();
    node.read(11, &[]);
    node.read(100, &[]);
    assert_eq!(node.fit(), [false, true, true]);
}

#[test]
fn missing_driver_makes_all_units_unhealthy_until_settled() {
    let mut node = Node::new();
    node.inventory.nvml = lost();
    node.read(10, &[]);
    assert_eq!(node.fit(), [false; 3]);
    node.inventory.nvml = ready();
    node.read(100, &[]);
    assert_eq!(node.settle(), Duration::from_secs(110));
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn recurring_fault_backs_off_up_to_an_hour() {
    let mut node = Node::new();
    let mut now = 10;
    let mut waits = Vec::new();
    for _ in 0..9 {
        node.read(now, &[xid(0, 94)]);
        let over = node.settle().as_secs();
        assert!(node.is_fit(&whole(0)));
        waits.push(over - now);
        now = over + 30;
    }
    assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
    now += 2 * HOUR;
    node.read(now, &[xid(0, 94)]);
    assert_eq!(node.settle().as_secs() - now, 60, "the earlier faults still count");
}

#[test]
fn xid_storm_is_one_fault() {
    let mut node = Node::new();
    let storm: Vec<Xid> = (0..10_000_u32)
        .map(|number| confined(0, number.into(), number, Some(number % 7)))
        .collect();
    node.read(10, &storm);
    let fault_count =
        |node: &Node| node.monitor.devices.values().map(DeviceHealth::len).sum::<usize>();
    assert!(fault_count(&node) <= 80, "{}", fault_count(&node));
    assert_eq!(node.fit(), [false, true, true]);
    node.settle();
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn ignored_xid_keeps_device_healthy() {
    let mut node = Node::new();
    node.monitor = HealthMonitor::new(XidTable::default().ignoring("95".parse().unwrap()));
    node.read(1, &[xid(0, 95)]);
    assert_eq!(node.fit(), [true; 3]);
    node.read(2, &[xid(0, 48)]);
    assert_eq!(node.fit(), [false, true, true]);
}

#[test]
fn faults_end_only_with_a_new_inventory() {
    let mut node = Node::new();
    node.read(1, &[xid(0, 94)]);
    // Long after its deadline, but without a reading.
    node.monitor.record_errors(Duration::from_secs(HOUR), &[xid(1, 94)]);
    assert_eq!(node.fit(), [false, false, true]);
    node.read(HOUR + 1, &[]);
    assert_eq!(node.fit(), [true, false, true]);
}

#[test]
fn units_are_unhealthy_before_first_inventory() {
    let mut node = Node::new();
    node.lose(0);
    node.recovery(1, RecoveryAction::ResetGpu);
    node.monitor = HealthMonitor::default();
    assert_eq!(node.fit(), [false; 3]);
    node.read(0, &[]);
    assert_eq!(node.fit(), [false, false, true]);
}
