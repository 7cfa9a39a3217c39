//! Tests of work with the driver and of its release.

use std::future::poll_fn;
use std::task::Poll;

use tokio::time;

use super::*;

/// Returns a handle after the first observation.
async fn ready_handle(fake: &Fake) -> DriverHandle {
    let handle = fake.spawn();
    follow(&handle, &mut handle.changes(), &ready("570.1")).await;
    handle
}

/// The same with a thread that waits for events.
async fn waits_for_events(
    fake: &Fake,
    deadline: Duration,
) -> (mpsc::Sender<Result<EventWait, DriverError>>, DriverHandle) {
    let (sender, waiting) = oneshot::channel();
    fake.lock().waiting = Some(sender);
    let sender = fake.events();
    let handle = fake.spawn_with(deadline);
    follow(&handle, &mut handle.changes(), &ready("570.1")).await;
    waiting.await.unwrap();
    (sender, handle)
}

#[tokio::test]
async fn work_is_followed_by_an_observation() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let mut hints = handle.changes();
    let before = fake.lock().reads_done;
    let version = handle.work(|driver, calls| {
        let read = driver.observe(calls);
        read.map(|reported| reported.driver.version.to_string())
    });
    assert_eq!(version.await, Ok(Ok("570.1".to_owned())));
    assert_eq!(fake.lock().reads_done, before + 2);
    hints.changed().await;
}

#[tokio::test]
async fn work_observes_devices_first() {
    let fake = Fake::with_driver("570.1");
    let seen = fake.clone();
    let reads = fake.spawn().work(move |_, _| seen.lock().reads_done).await;
    assert_eq!(reads, Ok(1));
}

#[tokio::test]
async fn work_fails_without_a_driver() {
    let handle = Fake::default().spawn();
    let reported = handle.work(|_, _| ()).await.unwrap_err();
    assert_eq!(
        reported.to_string(),
        "there is no NVIDIA driver: no NVML library libfake.so (looked in memory)"
    );
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    fake.lock().reads.push_back(Answer::Fails(MISMATCH));
    handle.observe().await;
    let lost = DriverUnavailable::Lost { reason: MISMATCH.to_string() };
    assert_eq!(handle.work(|_, _| ()).await, Err(lost));
}

#[tokio::test]
async fn work_completes_if_the_driver_is_lost_afterwards() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let mut hints = handle.changes();
    fake.lock().reads.push_back(Answer::Fails(MISMATCH));
    assert_eq!(handle.work(|_, _| 7).await, Ok(7));
    assert_eq!(handle.latest().nvml, lost());
    follow(&handle, &mut hints, &ready("570.1")).await;
}

#[tokio::test]
async fn work_completes_after_its_future_is_dropped() {
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
        _ = &mut work => panic!("the claim does not wait"),
        begun = beginning => begun.unwrap(),
    }
    drop(work);
    drop(handle);
    go.send(()).unwrap();
    assert_eq!(ended.await, Ok("done"));
}

#[tokio::test]
async fn observation_during_long_work_returns_last_inventory() {
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
async fn hanging_call_during_work_is_reported() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let (release, held) = mpsc::channel::<()>();
    let (begin, beginning) = oneshot::channel();
    let work = tokio::spawn({
        let handle = handle.clone();
        let call = move |_: &mut dyn GpuDriver, calls: &CallRecord| {
            calls.record("nvmlDeviceCreateGpuInstance", None, || {
                begin.send(()).unwrap();
                let _released = held.recv();
            });
        };
        async move { handle.work(call).await }
    });
    // A later observation only waits until the call is overdue.
    beginning.await.unwrap();
    let reported = handle.observe().await;
    let expected = stalled("nvmlDeviceCreateGpuInstance", Some(driver("570.1")));
    assert_eq!(reported.nvml, expected);
    drop(release);
    assert_eq!(work.await.unwrap(), Ok(()));
    assert_eq!(handle.latest().nvml, ready("570.1"));
}

#[tokio::test]
async fn released_driver_is_not_loaded_until_resumed() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let before = handle.latest();
    let reads = fake.lock().reads_done;
    let released = handle.release().await.unwrap();
    assert_eq!(fake.lock().held, 0);
    assert_eq!(handle.observe().await, before);
    assert_eq!(handle.release().await.unwrap_err(), DriverUnavailable::Released);
    assert_eq!(handle.work(|_, _| ()).await, Err(DriverUnavailable::Released));
    assert_eq!(handle.latest(), before);
    let state = || {
        let state = fake.lock();
        (state.held_at_open.len(), state.reads_done)
    };
    assert_eq!(state(), (1, reads));

    let mut hints = handle.changes();
    drop(released);
    hints.changed().await;
    assert_eq!(handle.latest(), before);
    assert_eq!(state(), (2, reads + 1));
    assert_eq!(handle.work(|_, _| 7).await, Ok(7));
}

#[tokio::test]
async fn driver_missing_after_release_is_lost() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let released = handle.release().await.unwrap();
    fake.lock().version = None;
    let mut hints = handle.changes();
    drop(released);
    hints.changed().await;
    assert!(matches!(handle.latest().nvml, NvmlState::Lost { .. }));
    fake.lock().version = Some("580.2");
    follow(&handle, &mut hints, &ready("580.2")).await;
}

#[tokio::test]
async fn release_waits_for_events_thread() {
    let fake = Fake::with_driver("570.1");
    let (sender, handle) = waits_for_events(&fake, Duration::from_hours(1)).await;
    let mut release = Box::pin(handle.release());
    let early = time::timeout(DEADLINE / 4, &mut release).await;
    assert!(early.is_err(), "{early:?}");
    let before = handle.latest();
    assert_eq!(before.nvml, ready("570.1"));
    sender.send(Ok(EventWait::TimedOut)).unwrap();
    let released = release.await.unwrap();
    assert_eq!(fake.lock().held, 0);
    let mut hints = handle.changes();
    drop(released);
    hints.changed().await;
    assert_eq!(handle.latest(), before);
    assert_eq!(fake.lock().held_at_open, [0, 0]);
}

#[tokio::test]
async fn release_timeout_reopens_the_driver() {
    let fake = Fake::with_driver("570.1");
    let (sender, handle) = waits_for_events(&fake, DEADLINE).await;
    let mut hints = handle.changes();
    assert_eq!(handle.release().await.unwrap_err(), DriverUnavailable::ReleaseTimedOut);
    sender.send(Ok(EventWait::TimedOut)).unwrap();
    follow(&handle, &mut hints, &ready("570.1")).await;
    assert_eq!(fake.lock().held_at_open, [0, 0]);
}

#[tokio::test]
async fn dropped_release_request_resumes_the_driver() {
    let fake = Fake::with_driver("570.1");
    let handle = ready_handle(&fake).await;
    let mut hints = handle.changes();
    let mut release = Box::pin(handle.release());
    // Sends the request; an available response is not awaited either.
    let requested = poll_fn(|context| Poll::Ready(release.as_mut().poll(context)));
    drop(requested.await);
    drop(release);
    hints.changed().await;
    assert_eq!(handle.work(|_, _| 7).await, Ok(7));
}
