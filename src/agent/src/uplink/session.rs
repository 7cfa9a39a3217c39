//! One connection to the aggregator, from the greeting to its end.

use std::time::Duration;

use octavo_client::endpoint::{bearer, describe_status, sanitize_reason};
use octavo_model::backoff::jittered;
use octavo_stream::messages::{encode_from_agent, parse_to_agent};
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::protocol::{AggregatorMessage, FromAgent, Parts, Sender};
use octavo_toolkit::desired::send_if_changed;
use octavo_toolkit::error::chain;
use octavo_toolkit::random::random;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};
use tracing::debug;

use super::dial::Connector;
use super::outbox::QueuedStatus;
use super::{ConnectionLog, closed};

/// State of the uplink that a connection uses.
pub(super) struct Session<'a> {
    pub(super) heartbeat: Duration,
    pub(super) sender: &'a mut Sender,
    pub(super) latest: &'a mut watch::Receiver<QueuedStatus>,
    pub(super) acknowledged: &'a watch::Sender<Parts>,
    pub(super) log: &'a mut ConnectionLog,
}

/// Reason for the end of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// There is nothing more to report, and the stream was closed.
    Closed,
    /// The connection broke, was refused, or could not be opened.
    Lost(String),
    /// The aggregator asked the agent to come back later.
    RetryLater { retry_after: Duration, reason: String },
}

/// Both directions of the stream.
struct StreamPair {
    out: mpsc::Sender<v1::FromAgent>,
    answers: Streaming<v1::ToAgent>,
}

/// Number of unanswered heartbeats after which the aggregator is considered gone, even if its kernel still accepts
/// data.
const MAX_UNANSWERED_HEARTBEATS: u32 = 3;
/// Maximum number of messages waiting to be written. A peer that reads leaves none waiting, so a full queue means that
/// it does not read.
const SEND_QUEUE_LEN: usize = 8;
/// Maximum size of an answer, which is an acknowledgement or a reason.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Time for the aggregator to notice that the stream has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

impl Session<'_> {
    pub(super) async fn run(&mut self, dial: &impl Connector) -> SessionEnd {
        let mut latest = self.latest.clone();
        let connected = tokio::select! {
            () = closed(&mut latest) => return SessionEnd::Closed,
            connected = self.connect(dial) => connected,
        };
        let mut stream = match connected {
            Ok(stream) => stream,
            Err(reason) => return SessionEnd::Lost(sanitize_reason(&reason)),
        };
        let end = self.exchange(&mut stream).await;
        drop(stream.out);
        if end == SessionEnd::Closed {
            // Waits for the aggregator to end the stream, so that it does not see a broken connection.
            let last = async { while let Ok(Some(_)) = stream.answers.message().await {} };
            let _silent = timeout(CLOSE_TIMEOUT, last).await;
        }
        if let SessionEnd::Lost(reason) = end {
            return SessionEnd::Lost(sanitize_reason(&reason));
        }
        end
    }

    /// Connects, greets, and waits for the aggregator to accept the stream.
    async fn connect(&mut self, dial: &impl Connector) -> Result<StreamPair, String> {
        let token = dial.token().map_err(|error| chain(&error))?;
        let channel = dial.dial().await.map_err(|error| chain(&error))?;
        let mut client = FleetClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
        let (out, messages) = mpsc::channel(SEND_QUEUE_LEN);
        let greeting = self.sender.connected();
        let greeted = out.try_send(encode_from_agent(&greeting));
        greeted.map_err(|error| chain(&error))?;
        let mut request = Request::new(ReceiverStream::new(messages));
        if let Some(token) = token {
            let value = bearer(&token).map_err(|error| chain(&error))?;
            request.metadata_mut().insert("authorization", value);
        }
        let report = client.report(request);
        match timeout(self.heartbeat.saturating_mul(MAX_UNANSWERED_HEARTBEATS), report).await {
            Ok(Ok(response)) => Ok(StreamPair { out, answers: response.into_inner() }),
            Ok(Err(status)) => Err(describe_status(&status)),
            Err(_) => Err("the aggregator does not respond".to_owned()),
        }
    }

    async fn exchange(&mut self, stream: &mut StreamPair) -> SessionEnd {
        // Report what was observed while the connection was being opened.
        if let Err(end) = self.send_status(stream) {
            return end;
        }
        let mut unanswered = 0;
        let mut in_sync = false;
        let mut beat = Box::pin(sleep(self.interval()));
        loop {
            let step = tokio::select! {
                answer = stream.answers.message() => {
                    unanswered = 0;
                    self.handle_message(stream, answer)
                }
                changed = self.latest.changed() => match changed {
                    Ok(()) => self.send_status(stream),
                    Err(_) => Err(SessionEnd::Closed),
                },
                () = &mut beat => {
                    beat.set(sleep(self.interval()));
                    unanswered += 1;
                    self.send_heartbeat(stream, unanswered)
                }
            };
            if let Err(end) = step {
                return end;
            }
            if let Some(parts) = self.sender.acknowledged() {
                send_if_changed(self.acknowledged, parts.clone());
            }
            if !in_sync && self.sender.is_in_sync() {
                in_sync = true;
                self.log.connected();
            }
        }
    }

    /// Returns the heartbeat interval with a jitter of a tenth, so that agents that started together do not send
    /// heartbeats simultaneously.
    fn interval(&self) -> Duration {
        let tenth = self.heartbeat / 10;
        let (shortest, longest) =
            (self.heartbeat.saturating_sub(tenth), self.heartbeat.saturating_add(tenth));
        jittered(shortest, longest, random())
    }

    fn handle_message(
        &mut self,
        stream: &StreamPair,
        received: Result<Option<v1::ToAgent>, Status>,
    ) -> Result<(), SessionEnd> {
        let message = match received {
            Ok(Some(message)) => message,
            Ok(None) => {
                return Err(SessionEnd::Lost("the aggregator closed the stream".to_owned()));
            }
            Err(status) => return Err(SessionEnd::Lost(describe_status(&status))),
        };
        let message = parse_to_agent(message).map_err(|error| SessionEnd::Lost(chain(&error)))?;
        match &message {
            AggregatorMessage::HoldOff { retry_after, reason } => {
                return Err(SessionEnd::RetryLater {
                    retry_after: *retry_after,
                    reason: reason.clone(),
                });
            }
            AggregatorMessage::Resync { reason } => {
                debug!(%reason, "the aggregator requested a complete status");
            }
            AggregatorMessage::Ack { .. } => {}
        }
        let next = self.sender.handle_message(&message);
        stream.send(next)
    }

    fn send_status(&mut self, stream: &StreamPair) -> Result<(), SessionEnd> {
        let next = match &*self.latest.borrow_and_update() {
            QueuedStatus::Status(parts) => self.sender.set_status(parts.clone()),
            QueuedStatus::Empty => None,
            QueuedStatus::TooLarge => {
                let reason = "the status of this node exceeds the size limit of aggregators";
                return Err(SessionEnd::Lost(reason.to_owned()));
            }
        };
        stream.send(next)
    }

    /// Sends a heartbeat. `due` is the number of unanswered ones, including this one and those that could not be sent.
    fn send_heartbeat(&mut self, stream: &StreamPair, due: u32) -> Result<(), SessionEnd> {
        if due > MAX_UNANSWERED_HEARTBEATS {
            return Err(SessionEnd::Lost(format!(
                "no response to {MAX_UNANSWERED_HEARTBEATS} heartbeats"
            )));
        }
        let heartbeat = self.sender.heartbeat();
        stream.send(heartbeat)
    }
}

impl StreamPair {
    fn send(&self, message: Option<FromAgent>) -> Result<(), SessionEnd> {
        let Some(message) = message else {
            return Ok(());
        };
        match self.out.try_send(encode_from_agent(&message)) {
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(SessionEnd::Lost("the aggregator does not read the stream".to_owned()))
            }
            // The other direction is about to report why the stream was closed.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }
}
