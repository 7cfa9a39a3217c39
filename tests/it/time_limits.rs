//! Tests of the limits for everything that tests wait for.

use std::process::{Command, Stdio};
use std::thread;

pub(crate) use crate::support::time_limits::*;

#[test]
fn missing_line_is_reported_with_what_was_printed() {
    let mut echo = Command::new("echo");
    let mut child = echo.arg("other").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(child.stdout.take().unwrap());
    assert!(exit_status(&mut child).success());
    let failed =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lines.find_line("wanted")))
            .unwrap_err();
    let message = failed.downcast_ref::<String>().unwrap();
    assert!(message.contains("\"wanted\"") && message.ends_with("\nother"), "{message}");
}

#[test]
fn watched_test_is_registered_until_its_thread_ends() {
    let name = "time_limits::example";
    let is_registered = move || RUNNING.lock().unwrap().contains_key(name);
    let test = thread::Builder::new().name(name.to_owned());
    let test = test.spawn(move || {
        watch();
        is_registered()
    });
    assert!(test.unwrap().join().unwrap());
    assert!(!is_registered());
}
