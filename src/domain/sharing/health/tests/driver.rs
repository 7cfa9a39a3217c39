//! Hanging or missing drivers, recurring faults, and error storms.

use super::*;

#[test]
fn a_driver_that_hangs_changes_nothing_for_two_minutes() {
    let mut node = Node::new();
    node.lose(0);
    node.look(5, &[]);
    node.inventory.nvml = stalled();
    node.look(10, &[]);
    assert_eq!(node.fit(), [false, true, true]);
    assert_eq!(node.monitor.again(), Some(Duration::from_secs(130)));
    node.look(129, &[]);
    assert_eq!(node.fit(), [false, true, true]);
    node.look(130, &[]);
    assert_eq!(node.fit(), [false; 3]);
    assert_eq!(
        node.reason(&whole(2)),
        "NVML does not answer: nvmlDeviceGetMigMode does not return; it is fit 10 s after NVML answers"
    );
    assert_eq!(node.monitor.again(), None);
    node.inventory.nvml = ready();
    node.look(500, &[]);
    node.look(510, &[]);
    assert_eq!(node.fit(), [false, true, true]);
}

#[test]
fn what_hangs_and_answers_in_time_was_never_unfit() {
    let mut node = Node::new();
    for round in 0..10 {
        node.inventory.nvml = stalled();
        node.look(round * 200 + 10, &[]);
        node.look(round * 200 + 110, &[]);
        assert_eq!(node.fit(), [true; 3]);
        node.inventory.nvml = ready();
        node.look(round * 200 + 150, &[]);
        assert_eq!(node.fit(), [true; 3]);
    }
}

#[test]
fn nothing_ends_while_the_driver_says_nothing() {
    let mut node = Node::new();
    node.look(10, &[xid(0, 94)]);
    node.inventory.nvml = stalled();
    node.look(11, &[]);
    node.look(100, &[]);
    assert_eq!(node.fit(), [false, true, true]);
}

#[test]
fn without_a_driver_nothing_is_fit_and_soon_after_it_came_all_is() {
    let mut node = Node::new();
    node.inventory.nvml = lost();
    node.look(10, &[]);
    assert_eq!(node.fit(), [false; 3]);
    node.inventory.nvml = ready();
    node.look(100, &[]);
    assert_eq!(node.settle(), Duration::from_secs(110));
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn who_comes_and_goes_waits_twice_as_long_each_time_but_an_hour_at_most() {
    let mut node = Node::new();
    let mut now = 10;
    let mut waits = Vec::new();
    for _ in 0..9 {
        node.look(now, &[xid(0, 94)]);
        let over = node.settle().as_secs();
        assert!(node.is_fit(&whole(0)));
        waits.push(over - now);
        now = over + 30;
    }
    assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
    now += 2 * HOUR;
    node.look(now, &[xid(0, 94)]);
    assert_eq!(node.settle().as_secs() - now, 60, "that is forgotten");
}

#[test]
fn a_storm_is_one_trouble() {
    let mut node = Node::new();
    let storm: Vec<Xid> = (0..10_000_u32)
        .map(|number| confined(0, number.into(), number, Some(number % 7)))
        .collect();
    node.look(10, &storm);
    let kept = |node: &Node| {
        node.monitor
            .patients
            .values()
            .map(Patient::len)
            .sum::<usize>()
    };
    assert!(kept(&node) <= 80, "{}", kept(&node));
    assert_eq!(node.fit(), [false, true, true]);
    node.settle();
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn what_an_administrator_leaves_out_is_not_looked_at() {
    let mut node = Node::new();
    node.monitor = Monitor::new(Table::default().without("95".parse().unwrap()));
    node.look(1, &[xid(0, 95)]);
    assert_eq!(node.fit(), [true; 3]);
    node.look(2, &[xid(0, 48)]);
    assert_eq!(node.fit(), [false, true, true]);
}

#[test]
fn what_was_read_before_ends_nothing_and_what_is_reported_meanwhile_counts() {
    let mut node = Node::new();
    node.look(1, &[xid(0, 94)]);
    // Long after its deadline, but without a reading.
    node.monitor.hear(Duration::from_secs(HOUR), &[xid(1, 94)]);
    assert_eq!(node.fit(), [false, false, true]);
    node.look(HOUR + 1, &[]);
    assert_eq!(node.fit(), [true, false, true]);
}

#[test]
fn the_first_look_of_all_finds_what_devices_show_and_nothing_is_fit_before_it() {
    let mut node = Node::new();
    node.lose(0);
    node.wish(1, RecoveryAction::ResetGpu);
    node.monitor = Monitor::default();
    assert_eq!(node.fit(), [false; 3]);
    node.look(0, &[]);
    assert_eq!(node.fit(), [false, false, true]);
}
