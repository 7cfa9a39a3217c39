//! Protocols of the servers, and limits of what a client can use.

use std::time::Duration;

use super::pace::Pace;

/// Protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2 only, for few long-lived streams.
    Grpc,
    /// HTTP/1.1 and HTTP/2, for browsers and programs.
    Http,
}

/// Limits per server and connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections.
    pub connections: usize,
    /// Time limit of the TLS handshake, and then of the first request.
    pub first_request: Duration,
    /// Approximate age at which a client is asked to reconnect; varies by a tenth, so that connections opened together
    /// do not end together.
    pub age: Duration,
    /// Time limit for open requests of a connection that is being closed.
    pub grace: Duration,
    /// Maximum time in which a client can read nothing of incomplete responses over HTTP/2; up to twice as long.
    pub unread: Duration,
    /// Minimum rate of request bodies; does not apply to agents' streams.
    pub body: Pace,
}

/// One stream of status, a second one while it is replaced, and a few watchers.
pub(super) const GRPC_STREAMS: u32 = 8;
/// A page with all its files at the same time.
pub(super) const HTTP_STREAMS: u32 = 64;
/// Maximum number of streams reset because of protocol errors of the client, after which the connection ends. Guards
/// against CVE-2025-8671.
pub(super) const LOCAL_RESETS: usize = 128;
/// Maximum number of streams reset by the client before they are accepted. Guards against CVE-2023-44487.
pub(super) const PENDING_RESETS: usize = 20;
/// Flow-control windows of a stream and of the connection.
pub(super) const WINDOW: u32 = 64 * 1024;
pub(super) const FRAME: u32 = 16 * 1024;
pub(super) const HEADERS: u32 = 16 * 1024;
/// Buffer for a client that does not read.
pub(super) const SEND_BUFFER: usize = 16 * 1024;
/// Maximum time that sent data may stay unacknowledged. Source: tcp(7), `TCP_USER_TIMEOUT`.
pub(super) const UNACKED_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const PING_EVERY: Duration = Duration::from_secs(20);
pub(super) const PING_ANSWER: Duration = Duration::from_secs(10);
/// Buffer for the request line and headers of HTTP/1.1.
pub(super) const HTTP1_BUFFER: usize = 16 * 1024;

/// A macro, because the builders of hyper and hyper-util have the same methods but no common trait.
macro_rules! limit_http2 {
    ($builder:expr, $streams:expr) => {
        $builder
            .timer(TokioTimer::new())
            .max_concurrent_streams($streams)
            .max_local_error_reset_streams($crate::serve::limits::LOCAL_RESETS)
            .max_pending_accept_reset_streams($crate::serve::limits::PENDING_RESETS)
            .initial_stream_window_size($crate::serve::limits::WINDOW)
            .initial_connection_window_size($crate::serve::limits::WINDOW)
            .max_frame_size($crate::serve::limits::FRAME)
            .max_header_list_size($crate::serve::limits::HEADERS)
            .max_send_buf_size($crate::serve::limits::SEND_BUFFER)
            .keep_alive_interval($crate::serve::limits::PING_EVERY)
            .keep_alive_timeout($crate::serve::limits::PING_ANSWER)
    };
}

pub(super) use limit_http2;

impl Protocol {
    /// Name of the server in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }

    /// ALPN names, the preferred one first.
    pub fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Grpc => &[b"h2"],
            Self::Http => &[b"h2", b"http/1.1"],
        }
    }
}

impl Limits {
    /// Default limits. The grace period of gRPC is short because an agent's stream never ends by itself.
    pub fn new(protocol: Protocol, connections: usize) -> Self {
        Self {
            connections,
            first_request: Duration::from_secs(10),
            age: Duration::from_hours(1),
            grace: match protocol {
                Protocol::Grpc => Duration::from_secs(1),
                Protocol::Http => Duration::from_secs(4),
            },
            unread: UNACKED_TIMEOUT,
            body: Pace { grace: Duration::from_secs(10), deadline: Duration::from_mins(1) },
        }
    }

    /// Maximum age of the connection with this number. Multiples of the golden ratio are evenly distributed for any
    /// number of connections.
    pub(super) fn age_of(&self, number: u64) -> Duration {
        let share = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let span = u128::from(share).saturating_mul((self.age / 5).as_nanos()) >> 32;
        let earliest = self.age.saturating_sub(self.age / 10);
        earliest.saturating_add(Duration::from_nanos(u64::try_from(span).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_ages_are_spread_evenly() {
        let limits = Limits::new(Protocol::Grpc, 1);
        let mut ages: Vec<Duration> = (0..1000).map(|number| limits.age_of(number)).collect();
        ages.sort();
        assert!(ages[0] >= Duration::from_mins(54) && ages[999] <= Duration::from_mins(66));
        let widest = ages.windows(2).map(|pair| pair[1].abs_diff(pair[0])).max();
        assert!(widest < Some(Duration::from_secs(2)), "{widest:?}");
    }
}
