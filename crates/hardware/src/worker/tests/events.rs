//! Tests of the effects of hardware events.

use super::*;

#[tokio::test]
async fn hardware_event_is_notified() {
    let fake = Fake::with_driver("570.1");
    let sender = fake.events();
    let handle = fake.spawn();
    follow(&handle, &mut handle.changes(), &ready("570.1")).await;
    let mut hints = handle.changes();
    sender.send(Ok(EventWait::Changed)).unwrap();
    hints.changed().await;
}

#[tokio::test]
async fn driver_lost_during_wait_is_reopened_after_release() {
    let fake = Fake::with_driver("570.1");
    let sender = fake.events();
    let handle = fake.spawn();
    let mut hints = handle.changes();
    follow(&handle, &mut hints, &ready("570.1")).await;
    sender.send(Err(MISMATCH)).unwrap();
    follow(&handle, &mut hints, &lost()).await;
    follow(&handle, &mut hints, &ready("570.1")).await;
    assert_eq!(fake.lock().held_at_open, [0, 0]);
}

#[tokio::test]
async fn pending_wait_postpones_reload() {
    let fake = Fake::with_driver("570.1");
    let sender = fake.events();
    let handle = fake.spawn();
    let mut hints = handle.changes();
    follow(&handle, &mut hints, &ready("570.1")).await;
    fake.lock().reads.push_back(Answer::Fails(MISMATCH));
    follow(&handle, &mut hints, &lost()).await;
    // Lets the wait return, so that the source stops. A source that was stopped before its first wait is already gone.
    let _gone = sender.send(Ok(EventWait::TimedOut));
    follow(&handle, &mut hints, &ready("570.1")).await;
    assert_eq!(fake.lock().held_at_open, [0, 0]);
}
