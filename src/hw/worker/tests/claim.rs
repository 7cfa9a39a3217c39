//! Tests of work with the driver and of its release.

use std::future::poll_fn;
use std::task::Poll;

use tokio::time;

use super::*;

/// Returns a handle after the first observation.
async fn ready_handle(fake: &Fake) -> Handle {
    let handle = fake.spawn();
    follow(&handle, &mut handle.hints(), &ready("570.1")).await;
    handle
}

/// The same with a thread that waits for events.
async fn waits_for_events(
    fake: &Fake,
    deadline: Duration,
) -> (mpsc::Sender<Result<Heard, DriverError>>, Handle) {
    let (say, waiting) = oneshot::channel();
    fake.lock().waiting = Some(say);
    let say = fake.events();
    let handle = fake.spawn_with(deadline);
    follow(&handle, &mut handle.hints(), &ready("570.1")).await;
    waiting.await.unwrap();
    (say, handle)
}

#[tokio::test]
async fn work_has_the_driver_and_what_it_changed_is_read_before_it_ends() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let mut hints = handle.hints();
    let before = fake.lock().reads_done;
    let version = handle.work(|driver, calls| {
        let read = driver.observe(calls);
        read.map(|told| told.driver.version.to_string())
    });
    assert_eq!(version.await, Ok(Ok("570.1".to_owned())));
    assert_eq!(fake.lock().reads_done, before + 2);
    hints.changed().await;
}

#[tokio::test]
async fn work_finds_devices_that_nobody_had_read_yet() {
    let fake = Fake::with_driver("570.1");
    let seen = fake.clone();
    let reads = fake.spawn().work(move |_, _| seen.lock().reads_done).await;
    assert_eq!(reads, Ok(1));
}

#[tokio::test]
async fn without_a_driver_nothing_is_worked_and_the_reason_is_told() {
    let handle = Fake::default().spawn();
    let told = handle.work(|_, _| ()).await.unwrap_err();
    assert_eq!(
        told.to_string(),
        "there is no NVIDIA driver: no NVML library libfake.so (looked in memory)"
    );
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    fake.lock().reads.push_back(Answer::Fails(MISMATCH));
    handle.observe().await;
    let lost = NoDriver::Lost {
        reason: MISMATCH.to_string(),
    };
    assert_eq!(handle.work(|_, _| ()).await, Err(lost));
}

#[tokio::test]
async fn work_after_which_the_driver_is_lost_has_been_done_and_the_driver_is_opened_again() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let mut hints = handle.hints();
    fake.lock().reads.push_back(Answer::Fails(MISMATCH));
    assert_eq!(handle.work(|_, _| 7).await, Ok(7));
    assert_eq!(handle.latest().nvml, lost());
    follow(&handle, &mut hints, &ready("570.1")).await;
}

#[tokio::test]
async fn work_that_nobody_waits_for_any_more_is_done_to_its_end() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let (begun, beginning) = oneshot::channel();
    let (go, going) = mpsc::channel::<()>();
    let (end, ended) = oneshot::channel();
    let mut work = Box::pin(handle.work(move |_, _| {
        begun.send(()).unwrap();
        going.recv().unwrap();
        end.send("done").unwrap();
    }));
    tokio::select! {
        _ = &mut work => panic!("it waits"),
        begun = beginning => begun.unwrap(),
    }
    drop(work);
    drop(handle);
    go.send(()).unwrap();
    assert_eq!(ended.await, Ok("done"));
}

#[tokio::test]
async fn a_reading_behind_long_work_answers_what_was_read_last() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let before = handle.latest();
    let (go, going) = mpsc::channel::<()>();
    let work = tokio::spawn({
        let handle = handle.clone();
        async move { handle.work(move |_, _| going.recv()).await }
    });
    tokio::task::yield_now().await;
    let reads = fake.lock().reads_done;
    assert_eq!(handle.observe().await, before);
    assert_eq!(fake.lock().reads_done, reads);
    go.send(()).unwrap();
    assert_eq!(work.await.unwrap(), Ok(Ok(())));
    // The request that timed out, the observation after the work, and this one.
    assert_eq!(handle.observe().await, before);
}

#[tokio::test]
async fn a_call_of_the_work_that_hangs_is_told() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let (release, held) = mpsc::channel::<()>();
    let (begin, beginning) = oneshot::channel();
    let work = tokio::spawn({
        let handle = handle.clone();
        let call = move |_: &mut dyn GpuDriver, calls: &CallWatch| {
            calls.during("nvmlDeviceCreateGpuInstance", None, || {
                begin.send(()).unwrap();
                let _released = held.recv();
            });
        };
        async move { handle.work(call).await }
    });
    // A later observation only waits until the call is overdue.
    beginning.await.unwrap();
    let told = handle.observe().await;
    let expected = stalled("nvmlDeviceCreateGpuInstance", Some(driver("570.1")));
    assert_eq!(told.nvml, expected);
    drop(release);
    assert_eq!(work.await.unwrap(), Ok(()));
    assert_eq!(handle.latest().nvml, ready("570.1"));
}

#[tokio::test]
async fn a_released_driver_is_held_by_nobody_until_it_is_resumed() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let before = handle.latest();
    let reads = fake.lock().reads_done;
    let released = handle.release().await.unwrap();
    assert_eq!(fake.lock().held, 0);
    assert_eq!(handle.observe().await, before);
    assert_eq!(handle.release().await.unwrap_err(), NoDriver::Released);
    assert_eq!(handle.work(|_, _| ()).await, Err(NoDriver::Released));
    assert_eq!(handle.latest(), before);
    let state = || {
        let state = fake.lock();
        (state.held_at_open.len(), state.reads_done)
    };
    assert_eq!(state(), (1, reads));

    let mut hints = handle.hints();
    released.resume();
    hints.changed().await;
    assert_eq!(handle.latest(), before);
    assert_eq!(state(), (2, reads + 1));
    assert_eq!(handle.work(|_, _| 7).await, Ok(7));
}

#[tokio::test]
async fn a_driver_that_is_not_there_after_the_release_is_lost() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let released = handle.release().await.unwrap();
    fake.lock().version = None;
    let mut hints = handle.hints();
    drop(released);
    hints.changed().await;
    assert!(matches!(handle.latest().nvml, NvmlState::Lost { .. }));
    fake.lock().version = Some("580.2");
    follow(&handle, &mut hints, &ready("580.2")).await;
}

#[tokio::test]
async fn a_release_waits_for_the_wait_for_events() {
    let fake = Fake::with_driver("570.1");
    let (say, handle) = waits_for_events(&fake, Duration::from_hours(1)).await;
    let mut release = Box::pin(handle.release());
    let early = time::timeout(DEADLINE / 4, &mut release).await;
    assert!(early.is_err(), "{early:?}");
    let before = handle.latest();
    assert_eq!(before.nvml, ready("570.1"));
    say.send(Ok(Heard::Nothing)).unwrap();
    let released = release.await.unwrap();
    assert_eq!(fake.lock().held, 0);
    let mut hints = handle.hints();
    drop(released);
    hints.changed().await;
    assert_eq!(handle.latest(), before);
    assert_eq!(fake.lock().held_at_open, [0, 0]);
}

#[tokio::test]
async fn a_driver_that_cannot_be_let_go_of_in_time_is_taken_again() {
    let fake = Fake::with_driver("570.1");
    let (say, handle) = waits_for_events(&fake, DEADLINE).await;
    let mut hints = handle.hints();
    assert_eq!(handle.release().await.unwrap_err(), NoDriver::Held);
    say.send(Ok(Heard::Nothing)).unwrap();
    follow(&handle, &mut hints, &ready("570.1")).await;
    assert_eq!(fake.lock().held_at_open, [0, 0]);
}

#[tokio::test]
async fn a_release_that_nobody_waits_for_any_more_ends_by_itself() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let mut hints = handle.hints();
    let mut release = Box::pin(handle.release());
    // Sends the request; an available response is not awaited either.
    let asked = poll_fn(|context| Poll::Ready(release.as_mut().poll(context)));
    drop(asked.await);
    drop(release);
    hints.changed().await;
    assert_eq!(handle.work(|_, _| 7).await, Ok(7));
}
