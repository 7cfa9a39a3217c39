//! Reasons for which a client's behavior ends its connection.

use std::error::Error;
use std::io;

/// Returns the value of the metrics label for the error that ended a connection; `None` if the client disconnected.
pub(super) fn cut_reason(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        cause = error.source();
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            // Without a source: the headers of a request over HTTP/1.1. With one: an answer to a ping.
            if error.is_timeout() {
                return Some(if cause.is_none() { "no_request" } else { "not_responding" });
            }
            if error.is_parse() {
                return Some("invalid_request");
            }
        }
        let timed_out = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        if error.downcast_ref().is_some_and(timed_out) {
            return Some("not_reading");
        }
        // Text of an error of h2 0.4 that is not the peer's GOAWAY.
        if error.to_string().starts_with("connection error detected: ") {
            return Some("protocol_error");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_the_client_causes_have_a_reason() {
        for (error, reason) in [
            (io::Error::from(io::ErrorKind::TimedOut), Some("not_reading")),
            (io::Error::from(io::ErrorKind::ConnectionReset), None),
            (
                io::Error::other("connection error detected: frame too large"),
                Some("protocol_error"),
            ),
            (io::Error::other("connection error received: connection error detected: "), None),
        ] {
            assert_eq!(cut_reason(&error), reason, "{error}");
        }
    }
}
