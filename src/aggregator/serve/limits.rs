//! What a server speaks, and how much of it a client may have.

use std::time::Duration;

use super::pace::Pace;

/// What a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2 only, for few streams that last.
    Grpc,
    /// HTTP/1.1 and HTTP/2, for browsers and programs.
    Http,
}

/// How much of what a peer may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections of the server.
    pub connections: usize,
    /// How long a TLS handshake may take, and then the first request.
    pub first_word: Duration,
    /// About how old a connection gets before its peer is asked to make a new one; a tenth more or less, so that those
    /// of one moment do not end in one.
    pub age: Duration,
    /// How long a connection that is being closed may take to end what it is at.
    pub grace: Duration,
    /// How fast a request body must arrive; agents' streams are no such bodies.
    pub body: Pace,
}

/// One stream of status, another while one is replaced, and a few that watch.
pub(super) const GRPC_STREAMS: u32 = 8;
/// A page with what belongs to it, at once.
pub(super) const HTTP_STREAMS: u32 = 64;
/// Streams reset because the peer broke the protocol, after which the connection ends. Guards against CVE-2025-8671.
pub(super) const LOCAL_RESETS: usize = 128;
/// Streams that the peer reset before they were looked at. Guards against CVE-2023-44487.
pub(super) const PENDING_RESETS: usize = 20;
/// What a peer may send before it is read, of a stream and of the connection.
pub(super) const WINDOW: u32 = 64 * 1024;
pub(super) const FRAME: u32 = 16 * 1024;
pub(super) const HEADERS: u32 = 16 * 1024;
/// What is kept for a peer that does not read.
pub(super) const SEND_BUFFER: usize = 16 * 1024;
/// How long a peer's kernel may take nothing of what is sent to it. Source: tcp(7), `TCP_USER_TIMEOUT`.
pub(super) const UNREAD: Duration = Duration::from_secs(30);
pub(super) const PING_EVERY: Duration = Duration::from_secs(20);
pub(super) const PING_ANSWER: Duration = Duration::from_secs(10);
/// The same for HTTP/1.1: request line and headers.
pub(super) const HTTP1_BUFFER: usize = 16 * 1024;

/// The builders of hyper and hyper-util have the same methods and no trait for them.
macro_rules! limit_http2 {
    ($builder:expr, $streams:expr) => {
        $builder
            .timer(TokioTimer::new())
            .max_concurrent_streams($streams)
            .max_local_error_reset_streams($crate::aggregator::serve::limits::LOCAL_RESETS)
            .max_pending_accept_reset_streams($crate::aggregator::serve::limits::PENDING_RESETS)
            .initial_stream_window_size($crate::aggregator::serve::limits::WINDOW)
            .initial_connection_window_size($crate::aggregator::serve::limits::WINDOW)
            .max_frame_size($crate::aggregator::serve::limits::FRAME)
            .max_header_list_size($crate::aggregator::serve::limits::HEADERS)
            .max_send_buf_size($crate::aggregator::serve::limits::SEND_BUFFER)
            .keep_alive_interval($crate::aggregator::serve::limits::PING_EVERY)
            .keep_alive_timeout($crate::aggregator::serve::limits::PING_ANSWER)
    };
}

pub(super) use limit_http2;

impl Protocol {
    /// The server's name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }

    /// What it is called in a TLS handshake, the preferred one first.
    pub fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Grpc => &[b"h2"],
            Self::Http => &[b"h2", b"http/1.1"],
        }
    }
}

impl Limits {
    /// The limits that ship. An agent's stream never ends by itself, so waiting for it would be in vain.
    pub fn new(protocol: Protocol, connections: usize) -> Self {
        Self {
            connections,
            first_word: Duration::from_secs(10),
            age: Duration::from_hours(1),
            grace: match protocol {
                Protocol::Grpc => Duration::from_secs(1),
                Protocol::Http => Duration::from_secs(4),
            },
            body: Pace {
                grace: Duration::from_secs(10),
                deadline: Duration::from_mins(1),
            },
        }
    }

    /// How old the connection of this number gets. Multiples of the golden ratio spread evenly, however many there are.
    pub(super) fn age_of(&self, number: u64) -> Duration {
        let share = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let span = u128::from(share).saturating_mul((self.age / 5).as_nanos()) >> 32;
        let earliest = self.age.saturating_sub(self.age / 10);
        earliest.saturating_add(Duration::from_nanos(
            u64::try_from(span).unwrap_or(u64::MAX),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_moment_end_spread_over_a_fifth_of_their_age() {
        let limits = Limits::new(Protocol::Grpc, 1);
        let mut ages: Vec<Duration> = (0..1000).map(|number| limits.age_of(number)).collect();
        ages.sort();
        assert!(ages[0] >= Duration::from_mins(54) && ages[999] <= Duration::from_mins(66));
        let widest = ages.windows(2).map(|pair| pair[1].abs_diff(pair[0])).max();
        assert!(widest < Some(Duration::from_secs(2)), "{widest:?}");
    }
}
