//! The agent's socket: commands on the same node select a layout through it and watch its progress.
//!
//! Any process that can connect to it can repartition the node. The socket's directory and mode therefore admit only
//! root or the agent's own user, and the peer's credentials are also checked through the kernel.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_engine::agent_socket::{
    Answer, LayoutChoice, MAX_LINE_BYTES, Request, SOCKET_NAME, line,
};
use octavo_node::sharing::usage::Usage;
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_toolkit::unix_socket::listen_private;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info, warn};

/// Maximum number of concurrent commands.
const MAX_CONNECTIONS: usize = 8;
/// Timeout for a command to send its request, and to read each answer.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// A command's request, which the agent's loop handles.
#[derive(Debug)]
pub struct CommandRequest {
    /// The selected layout; `None` returns to the layout of the settings.
    pub choice: Option<LayoutChoice>,
    /// Channel for the new generation, or the reason for a refusal.
    pub reply: oneshot::Sender<Result<u64, String>>,
}

/// The agent loop's end of the socket.
#[derive(Debug)]
pub struct ControlSocket {
    /// Requests from commands.
    requests: mpsc::Receiver<CommandRequest>,
    /// The node's status, for commands that watch.
    pub status: watch::Sender<Arc<NodeLayoutStatus>>,
    accepting: JoinSet<()>,
    /// The socket's file; removed when this is dropped.
    _file: SocketFile,
}

impl ControlSocket {
    /// Returns the next request; `None` once no more are accepted.
    pub async fn next(&mut self) -> Option<CommandRequest> {
        tokio::select! {
            request = self.requests.recv() => request,
            Some(ended) = self.accepting.join_next() => {
                if let Err(error) = ended
                    && error.is_panic()
                {
                    resume_unwind(error.into_panic());
                }
                None
            }
        }
    }
}

/// A socket's file; removed on drop, which is before the lock of the directory is released.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _gone_already = fs::remove_file(&self.0);
    }
}

/// State that commands can read.
#[derive(Debug, Clone)]
struct WatchedState {
    status: watch::Receiver<Arc<NodeLayoutStatus>>,
    usage: Option<watch::Receiver<Arc<Usage>>>,
}

/// Listens in `state_dir` until the returned socket is dropped. A socket that an earlier agent left behind is replaced: the caller
/// holds the lock of the directory.
///
/// `usage` is the usage by pod, if it is observed.
pub fn listen(
    state_dir: &Path,
    usage: Option<watch::Receiver<Arc<Usage>>>,
) -> io::Result<ControlSocket> {
    let path = state_dir.join(SOCKET_NAME);
    let listener = listen_private(&path)?;
    let owner = fs::metadata(&path)?.uid();
    let (request_sender, requests) = mpsc::channel(MAX_CONNECTIONS);
    let (status, watched) = watch::channel(Arc::new(NodeLayoutStatus::default()));
    info!(socket = %path.display(), "listening for commands");
    let state = WatchedState { status: watched, usage };
    let mut accepting = JoinSet::new();
    accepting.spawn(accept(listener, owner, request_sender, state));
    Ok(ControlSocket { requests, status, accepting, _file: SocketFile(path) })
}

async fn accept(
    listener: UnixListener,
    owner: u32,
    request_sender: mpsc::Sender<CommandRequest>,
    state: WatchedState,
) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut commands = JoinSet::new();
    loop {
        // Reap finished commands; a panic was already logged.
        while commands.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            () = request_sender.closed() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Most likely out of file descriptors: other connections must close first.
                    warn!(%error, "cannot accept a command connection");
                    tokio::time::sleep(COMMAND_TIMEOUT).await;
                    continue;
                }
            },
        };
        let uid = stream.peer_cred().map(|peer| peer.uid());
        if !matches!(uid, Ok(uid) if uid == 0 || uid == owner) {
            warn!(?uid, "command connection rejected: the user is not authorized");
            continue;
        }
        let (request_sender, state) = (request_sender.clone(), state.clone());
        commands.spawn(async move {
            let _seat = permit;
            if let Err(error) = serve(stream, request_sender, state).await {
                debug!(%error, "command connection failed");
            }
        });
    }
}

async fn serve(
    stream: UnixStream,
    request_sender: mpsc::Sender<CommandRequest>,
    state: WatchedState,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let limit = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
    let mut reader = BufReader::new(reader.take(limit));
    let mut text = String::new();
    timeout(COMMAND_TIMEOUT, reader.read_line(&mut text)).await??;
    let response = match serde_json::from_str::<Request>(&text) {
        Ok(Request::Usage {}) => match state.usage {
            Some(usage) => return stream_updates(reader, writer, usage, usage_response).await,
            None => Some(Answer::Refused {
                reason:
                    "usage by pod is not collected on this node: start the agent with --usage-interval (chart: agent.usage.interval)"
                        .to_owned(),
            }),
        },
        Ok(Request::Watch {}) => None,
        Ok(Request::Apply(choice)) => Some(submit_choice(&request_sender, Some(choice)).await),
        Ok(Request::Forget {}) => Some(submit_choice(&request_sender, None).await),
        Err(error) => Some(Answer::Refused {
            reason: format!("cannot parse the request: {error}"),
        }),
    };
    if let Some(response) = response {
        write_response(&mut writer, &response).await?;
        if matches!(response, Answer::Refused { .. }) {
            return Ok(());
        }
    }
    stream_updates(reader, writer, state.status, |status| {
        Answer::Status(Box::new(NodeLayoutStatus::clone(status)))
    })
    .await
}

fn usage_response(usage: &Usage) -> Answer {
    Answer::Usage(usage.clone())
}

/// Sends the current value, and each new one, until the command disconnects.
async fn stream_updates<T>(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWriteExt + Unpin,
    mut known: watch::Receiver<Arc<T>>,
    to_response: impl Fn(&T) -> Answer,
) -> io::Result<()> {
    let mut rest = [0];
    loop {
        let now = Arc::clone(&known.borrow_and_update());
        write_response(&mut writer, &to_response(&now)).await?;
        tokio::select! {
            // The command is not expected to send anything else: it sent something, or disconnected.
            _ = reader.read(&mut rest) => return Ok(()),
            changed = known.changed() => if changed.is_err() {
                return Ok(());
            },
        }
    }
}

/// Passes the choice to the agent's loop and returns its answer, which may take a while, as the loop first finishes
/// its current work.
async fn submit_choice(
    request_sender: &mpsc::Sender<CommandRequest>,
    choice: Option<LayoutChoice>,
) -> Answer {
    let (reply, reply_received) = oneshot::channel();
    let gone = || Answer::Refused { reason: "the agent is stopping".to_owned() };
    if request_sender.send(CommandRequest { choice, reply }).await.is_err() {
        return gone();
    }
    match reply_received.await {
        Ok(Ok(generation)) => Answer::Accepted { generation },
        Ok(Err(reason)) => Answer::Refused { reason },
        Err(_) => gone(),
    }
}

async fn write_response(
    writer: &mut (impl AsyncWriteExt + Unpin),
    response: &Answer,
) -> io::Result<()> {
    timeout(COMMAND_TIMEOUT, writer.write_all(line(response).as_bytes())).await?
}
