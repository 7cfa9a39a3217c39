//! The stream of changes: Server-Sent Events, each of which contains one JSON object.
//!
//! Source of the format: the HTML standard, "Server-sent events". Only the field `data` is used here.

use std::marker::PhantomData;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use octavo_fleet::api::Event;
use octavo_fleet::hardware_profile::document::ProfileEvent;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::RequestError;

/// Maximum length of a line. A row of a node with many types is a few kilobytes.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Timeout for the stream: the aggregator sends a heartbeat several times a minute.
const STREAM_TIMEOUT: Duration = Duration::from_mins(1);

/// A stream that is being read.
#[derive(Debug)]
pub struct Events<E> {
    body: Incoming,
    lines: LineBuffer,
    of: PhantomData<E>,
}

/// Type of a stream's events.
pub trait EventStream: DeserializeOwned {
    /// Path of the stream.
    const PATH: &str;

    /// Returns whether the event marks the end of the initial state.
    fn is_synced(&self) -> bool;
}

impl EventStream for Event {
    const PATH: &str = "/api/v1/events";

    fn is_synced(&self) -> bool {
        matches!(self, Self::Synced { .. })
    }
}

impl EventStream for ProfileEvent {
    const PATH: &str = "/api/v1/profile-events";

    fn is_synced(&self) -> bool {
        matches!(self, Self::Synced { .. })
    }
}

/// Splits bytes into lines.
#[derive(Debug, Default)]
struct LineBuffer(BytesMut);

impl<E: EventStream> Events<E> {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, lines: LineBuffer::default(), of: PhantomData }
    }

    /// Returns the next event. Cancel-safe.
    pub async fn next(&mut self) -> Result<E, RequestError> {
        loop {
            while let Some(line) = self.lines.next() {
                if let Some(event) = event(&line)? {
                    return Ok(event);
                }
            }
            if self.lines.0.len() > MAX_LINE_BYTES {
                return Err(RequestError::TooLong(MAX_LINE_BYTES));
            }
            let frame = timeout(STREAM_TIMEOUT, self.body.frame()).await;
            match frame.map_err(|_| RequestError::StreamSilent(STREAM_TIMEOUT))? {
                None => return Err(RequestError::StreamEnded),
                Some(Err(error)) => return Err(RequestError::Broken(error.into())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.lines.0.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

impl LineBuffer {
    /// Returns the next whole line, without its end.
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

/// Parses a line. The aggregator writes each object on one line, so each `data` line is an event.
fn event<E: EventStream>(line: &[u8]) -> Result<Option<E>, RequestError> {
    let Some(data) = line.strip_prefix(b"data:") else {
        return Ok(None);
    };
    serde_json::from_slice(data).map(Some).map_err(RequestError::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_at_any_chunk_boundary() {
        let text = b": alive\r\nevent: removed\r\ndata: {\"kind\":\"removed\",\"name\":\"a\"}\n\n";
        for cut in 0..text.len() {
            let mut lines = LineBuffer::default();
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
