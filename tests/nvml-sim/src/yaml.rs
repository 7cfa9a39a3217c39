//! Reads YAML without leaving anything behind in the calling thread.
//!
//! The parser keeps thread-local data with a destructor, and as long as a thread has such data the C library keeps the
//! code mapped: `dlclose` would do nothing, and a client could never reload the library after a driver was replaced. So
//! the parser runs in a thread of its own, which is over when the value is there. The thread is the C library's, because
//! starting one of the standard library's leaves thread-local data in the thread that starts it.

use serde::de::DeserializeOwned;
use serde_saphyr::Error;

/// A parse on its way through the other thread.
struct Job<'a, T> {
    text: &'a str,
    done: Option<Result<T, Error>>,
}

/// The value of a text.
pub fn read<T: DeserializeOwned + Send>(text: &str) -> Result<T, Error> {
    let mut job = Job { text, done: None };
    let argument = (&raw mut job).cast();
    let mut thread = 0;
    let defaults = std::ptr::null();
    // SAFETY: the job outlives the thread, which is joined below, and is not touched here before that; its parts may be
    // sent to another thread.
    let started = unsafe { libc::pthread_create(&raw mut thread, defaults, parse::<T>, argument) };
    if started == 0 {
        // SAFETY: the thread was started just now and is joined only here.
        unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
    }
    // Where no thread can be had, unloading is the lesser loss.
    job.done.unwrap_or_else(|| serde_saphyr::from_str(text))
}

extern "C" fn parse<T: DeserializeOwned>(job: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `read` gave a job of this type, which it does not touch while this thread runs.
    let job = unsafe { &mut *job.cast::<Job<'_, T>>() };
    job.done = Some(serde_saphyr::from_str(job.text));
    std::ptr::null_mut()
}
