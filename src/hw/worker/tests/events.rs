//! Tests of the effects of hardware events.

use super::*;

#[tokio::test]
async fn what_the_hardware_says_is_a_hint() {
    let fake = Fake::with_driver("570.1");
    let say = fake.events();
    let handle = fake.spawn();
    follow(&handle, &mut handle.hints(), &ready("570.1")).await;
    let mut hints = handle.hints();
    say.send(Ok(Heard::Something)).unwrap();
    hints.changed().await;
}

#[tokio::test]
async fn a_driver_lost_while_waiting_for_events_is_opened_again_when_all_have_let_go() {
    let fake = Fake::with_driver("570.1");
    let say = fake.events();
    let handle = fake.spawn();
    let mut hints = handle.hints();
    follow(&handle, &mut hints, &ready("570.1")).await;
    say.send(Err(MISMATCH)).unwrap();
    follow(&handle, &mut hints, &lost()).await;
    follow(&handle, &mut hints, &ready("570.1")).await;
    assert_eq!(fake.lock().held_at_open, [0, 0]);
}

#[tokio::test]
async fn a_wait_for_events_puts_off_the_next_start() {
    let fake = Fake::with_driver("570.1");
    let say = fake.events();
    let handle = fake.spawn();
    let mut hints = handle.hints();
    follow(&handle, &mut hints, &ready("570.1")).await;
    fake.lock().reads.push_back(Answer::Fails(MISMATCH));
    follow(&handle, &mut hints, &lost()).await;
    // Lets the wait return, so that the source stops. A source that was stopped before its first wait is already gone.
    let _gone = say.send(Ok(Heard::Nothing));
    follow(&handle, &mut hints, &ready("570.1")).await;
    assert_eq!(fake.lock().held_at_open, [0, 0]);
}
