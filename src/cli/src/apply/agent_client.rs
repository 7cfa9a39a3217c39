//! Changes made by the agent, requested through its socket.

use std::io;
use std::path::Path;

use octavo_engine::agent_socket::{Answer, Request, SOCKET_NAME, line};
use octavo_planner::reconcile::NodeLayoutStatus;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::progress::ProgressDisplay;
use crate::CliError;
use crate::settings::apply::WaitPolicy;

/// Connects to the agent of this node; `None` if none listens.
pub(crate) async fn connect(state_dir: &Path) -> Result<Option<UnixStream>, CliError> {
    let socket = state_dir.join(SOCKET_NAME);
    match UnixStream::connect(&socket).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(source) => Err(CliError::Agent { socket, source }),
    }
}

/// Sends a request, and watches until the layout is applied or `wait` allows no further wait.
pub(super) async fn ask(
    mut agent: UnixStream,
    request: &Request,
    wait: WaitPolicy,
    show: &ProgressDisplay,
) -> Result<NodeLayoutStatus, CliError> {
    let end = Instant::now() + wait.limit();
    let talk = |source| CliError::AgentGone { source };
    agent.write_all(line(request).as_bytes()).await.map_err(talk)?;
    let mut lines = BufReader::new(agent).lines();
    let mut wanted = None;
    let mut last = None;
    let mut ticks = show.ticks();
    loop {
        let received = tokio::select! {
            received = timeout_at(end, lines.next_line()) => received,
            _ = ticks.tick() => {
                show.refresh();
                continue;
            }
        };
        let received = match received {
            Ok(received) => received.map_err(talk)?,
            // A status from before the agent handled the choice is no answer to it.
            Err(_) => return last.ok_or(CliError::AgentTimeout(wait.limit())),
        };
        let Some(received) = received else {
            return Err(talk(io::ErrorKind::UnexpectedEof.into()));
        };
        let answer =
            serde_json::from_str(&received).map_err(|error| talk(io::Error::other(error)))?;
        match answer {
            Answer::Accepted { generation } => wanted = Some(generation),
            // Not requested here.
            Answer::Usage(_) => {}
            Answer::Refused { reason } => return Err(CliError::AgentRefused(reason)),
            Answer::Status(status) => {
                show.progress(&status);
                let seen = wanted.is_some_and(|wanted| status.generation >= wanted);
                let done = match wait {
                    WaitPolicy::Once(_) => status.is_settled(),
                    WaitPolicy::UntilDone(_) => status.is_applied(),
                };
                if seen && done {
                    return Ok(*status);
                }
                last = seen.then_some(*status);
            }
        }
    }
}
