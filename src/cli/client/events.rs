//! The stream of changes: Server-Sent Events, each of which carries one JSON object.
//!
//! Source of the form: the HTML standard, "Server-sent events". Of its fields only `data` matters here.

use std::marker::PhantomData;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::ClientError;
use crate::wire::api::Event;
use crate::wire::hardware_profiles::events::ProfileEvent;

/// A row of a node with many types is a few kilobytes.
const LONGEST_LINE: usize = 1 << 20;

/// The aggregator says that it lives several times a minute, so a stream that is silent for longer is dead.
const SILENCE: Duration = Duration::from_mins(1);

/// A stream that is being read.
#[derive(Debug)]
pub(in crate::cli) struct Events<E> {
    body: Incoming,
    lines: Lines,
    of: PhantomData<E>,
}

/// What a stream is of.
pub(in crate::cli) trait Stream: DeserializeOwned {
    /// Where it is.
    const PATH: &str;

    /// Whether it says that all there was has been sent.
    fn is_synced(&self) -> bool;
}

impl Stream for Event {
    const PATH: &str = "/api/v1/events";

    fn is_synced(&self) -> bool {
        matches!(self, Self::Synced { .. })
    }
}

impl Stream for ProfileEvent {
    const PATH: &str = "/api/v1/profile-events";

    fn is_synced(&self) -> bool {
        matches!(self, Self::Synced { .. })
    }
}

/// Bytes that become lines.
#[derive(Debug, Default)]
struct Lines(BytesMut);

impl<E: Stream> Events<E> {
    pub(super) fn new(body: Incoming) -> Self {
        Self {
            body,
            lines: Lines::default(),
            of: PhantomData,
        }
    }

    /// The next event. Can be dropped and called again without losing one.
    pub(in crate::cli) async fn next(&mut self) -> Result<E, ClientError> {
        loop {
            while let Some(line) = self.lines.next() {
                if let Some(event) = event(&line)? {
                    return Ok(event);
                }
            }
            if self.lines.0.len() > LONGEST_LINE {
                return Err(ClientError::TooLong(LONGEST_LINE));
            }
            let frame = timeout(SILENCE, self.body.frame()).await;
            match frame.map_err(|_| ClientError::Silent(SILENCE))? {
                None => return Err(ClientError::Ended),
                Some(Err(error)) => return Err(ClientError::Broken(error.into())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.lines.0.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

impl Lines {
    /// The next whole line, without its end.
    fn next(&mut self) -> Option<Bytes> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let mut line = self.0.split_to(end).freeze();
        self.0.advance(1);
        if line.last() == Some(&b'\r') {
            line.truncate(line.len().saturating_sub(1));
        }
        Some(line)
    }
}

/// What a line says. The aggregator writes each object on one line, so a line of data is an event.
fn event<E: Stream>(line: &[u8]) -> Result<Option<E>, ClientError> {
    let Some(data) = line.strip_prefix(b"data:") else {
        return Ok(None);
    };
    serde_json::from_slice(data)
        .map(Some)
        .map_err(ClientError::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_wherever_the_network_cuts_them() {
        let text = b": alive\r\nevent: removed\r\ndata: {\"kind\":\"removed\",\"name\":\"a\"}\n\n";
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut found: Vec<Event> = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                lines.0.extend_from_slice(part);
                while let Some(line) = lines.next() {
                    found.extend(event(&line).unwrap());
                }
            }
            let name = "a".to_owned();
            assert_eq!(found, [Event::Removed { name }], "cut at {cut}");
            assert!(lines.0.is_empty());
        }
    }
}
