//! Reads YAML without leaving thread-local data in the calling thread.
//!
//! The parser has thread-local data with a destructor, and while a thread has such data the C library does not unmap
//! the code: `dlclose` would do nothing, and a client could never reload the library after a driver update. So the
//! parser runs in its own thread, which ends with the result. It is a thread of the C library, because starting one of
//! the standard library's leaves thread-local data in the starting thread.

use serde::de::DeserializeOwned;
use serde_saphyr::Error;

/// A parse in the other thread.
struct Job<'a, T> {
    text: &'a str,
    done: Option<Result<T, Error>>,
}

/// Parses a text.
pub fn read<T: DeserializeOwned + Send>(text: &str) -> Result<T, Error> {
    let mut job = Job { text, done: None };
    let argument = (&raw mut job).cast();
    let mut thread = 0;
    let defaults = std::ptr::null();
    // SAFETY: the job outlives the thread, which is joined below, and is not accessed here before that; its parts may
    // be sent to another thread.
    let started = unsafe { libc::pthread_create(&raw mut thread, defaults, parse::<T>, argument) };
    if started == 0 {
        // SAFETY: the thread was just started and is joined only here.
        unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
    }
    // If no thread can be started, an unloadable library is the lesser problem.
    job.done.unwrap_or_else(|| serde_saphyr::from_str(text))
}

extern "C" fn parse<T: DeserializeOwned>(job: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `read` passed a job of this type, which it does not access while this thread runs.
    let job = unsafe { &mut *job.cast::<Job<'_, T>>() };
    job.done = Some(serde_saphyr::from_str(job.text));
    std::ptr::null_mut()
}
