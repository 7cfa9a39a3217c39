//! The agent's socket: commands on the same node select a layout through it and watch its progress.
//!
//! Any process that can connect to it can repartition the node. The socket's directory and mode therefore admit only
//! root or the agent's own user, and the peer's credentials are also checked through the kernel.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_documents::agent_socket::{
    Answer, LayoutChoice, MAX_LINE_BYTES, NodeLayoutStatus, Request, SOCKET_NAME, line,
};
use octavo_documents::usage::UsageJson;
use octavo_node::sharing::usage::Usage;
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
    asked: mpsc::Receiver<CommandRequest>,
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
            asked = self.asked.recv() => asked,
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

/// Listens in `folder` until the desk is dropped. A socket that an earlier agent left behind is replaced: the caller
/// holds the lock of the directory.
///
/// `usage` is the usage by pod, if it is observed.
pub fn listen(
    folder: &Path,
    usage: Option<watch::Receiver<Arc<Usage>>>,
) -> io::Result<ControlSocket> {
    let path = folder.join(SOCKET_NAME);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let owner = fs::metadata(&path)?.uid();
    let (ask, asked) = mpsc::channel(MAX_CONNECTIONS);
    let (status, watched) = watch::channel(Arc::new(NodeLayoutStatus::default()));
    info!("listening for commands on {}", path.display());
    let told = WatchedState {
        status: watched,
        usage,
    };
    let mut accepting = JoinSet::new();
    accepting.spawn(accept(listener, owner, ask, told));
    Ok(ControlSocket {
        asked,
        status,
        accepting,
        _file: SocketFile(path),
    })
}

async fn accept(
    listener: UnixListener,
    owner: u32,
    ask: mpsc::Sender<CommandRequest>,
    told: WatchedState,
) {
    let seats = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut commands = JoinSet::new();
    loop {
        // Reap finished commands; a panic was already logged.
        while commands.try_join_next().is_some() {}
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            () = ask.closed() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Most likely out of file descriptors: other connections must close first.
                    warn!("cannot accept a command: {error}");
                    tokio::time::sleep(COMMAND_TIMEOUT).await;
                    continue;
                }
            },
        };
        let uid = stream.peer_cred().map(|peer| peer.uid());
        if !matches!(uid, Ok(uid) if uid == 0 || uid == owner) {
            warn!("a command of user {uid:?} was turned away");
            continue;
        }
        let (ask, told) = (ask.clone(), told.clone());
        commands.spawn(async move {
            let _seat = seat;
            if let Err(error) = serve(stream, ask, told).await {
                debug!("a command went away: {error}");
            }
        });
    }
}

async fn serve(
    stream: UnixStream,
    ask: mpsc::Sender<CommandRequest>,
    told: WatchedState,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let limit = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
    let mut reader = BufReader::new(reader.take(limit));
    let mut text = String::new();
    timeout(COMMAND_TIMEOUT, reader.read_line(&mut text)).await??;
    let answer = match serde_json::from_str::<Request>(&text) {
        Ok(Request::Usage {}) => match told.usage {
            Some(usage) => return stream_updates(reader, writer, usage, usage_answer).await,
            None => Some(Answer::Refused {
                reason:
                    "nobody looks at who uses what here: the agent runs without --usage-interval (the chart: agent.usage.interval)"
                        .to_owned(),
            }),
        },
        Ok(Request::Watch {}) => None,
        Ok(Request::Apply(choice)) => Some(submit_choice(&ask, Some(choice)).await),
        Ok(Request::Forget {}) => Some(submit_choice(&ask, None).await),
        Err(error) => Some(Answer::Refused {
            reason: format!("cannot read what is asked for: {error}"),
        }),
    };
    if let Some(answer) = answer {
        write_answer(&mut writer, &answer).await?;
        if matches!(answer, Answer::Refused { .. }) {
            return Ok(());
        }
    }
    stream_updates(reader, writer, told.status, |status| {
        Answer::Status(Box::new(NodeLayoutStatus::clone(status)))
    })
    .await
}

fn usage_answer(usage: &Usage) -> Answer {
    Answer::Usage(UsageJson::from(usage))
}

/// Sends the current value, and each new one, until the command disconnects.
async fn stream_updates<T>(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWriteExt + Unpin,
    mut known: watch::Receiver<Arc<T>>,
    said: impl Fn(&T) -> Answer,
) -> io::Result<()> {
    let mut rest = [0];
    loop {
        let now = Arc::clone(&known.borrow_and_update());
        write_answer(&mut writer, &said(&now)).await?;
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
async fn submit_choice(ask: &mpsc::Sender<CommandRequest>, choice: Option<LayoutChoice>) -> Answer {
    let (reply, answer) = oneshot::channel();
    let gone = || Answer::Refused {
        reason: "the agent is stopping".to_owned(),
    };
    if ask.send(CommandRequest { choice, reply }).await.is_err() {
        return gone();
    }
    match answer.await {
        Ok(Ok(generation)) => Answer::Accepted { generation },
        Ok(Err(reason)) => Answer::Refused { reason },
        Err(_) => gone(),
    }
}

async fn write_answer(
    writer: &mut (impl AsyncWriteExt + Unpin),
    answer: &Answer,
) -> io::Result<()> {
    timeout(COMMAND_TIMEOUT, writer.write_all(line(answer).as_bytes())).await?
}
