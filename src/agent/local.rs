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

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::domain::sharing::usage::Usage;
use crate::wire::local::{Answer, Choice, LONGEST_LINE, Request, SOCKET, Status, line};
use crate::wire::usage::UsageJson;

/// Maximum number of concurrent commands.
const MOST: usize = 8;
/// Timeout for a command to send its request, and to read each answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A command's request, which the agent's loop handles.
#[derive(Debug)]
pub struct Asked {
    /// The selected layout; `None` returns to the layout of the settings.
    pub choice: Option<Choice>,
    /// Channel for the new generation, or the reason for a refusal.
    pub reply: oneshot::Sender<Result<u64, String>>,
}

/// The agent loop's end of the socket.
#[derive(Debug)]
pub struct Desk {
    /// Requests from commands.
    asked: mpsc::Receiver<Asked>,
    /// The node's status, for commands that watch.
    pub status: watch::Sender<Arc<Status>>,
    accepting: JoinSet<()>,
    /// The socket's file; removed when this is dropped.
    _file: SocketFile,
}

impl Desk {
    /// Returns the next request; `None` once no more are accepted.
    pub async fn next(&mut self) -> Option<Asked> {
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
struct Told {
    status: watch::Receiver<Arc<Status>>,
    usage: Option<watch::Receiver<Arc<Usage>>>,
}

/// Listens in `folder` until the desk is dropped. A socket that an earlier agent left behind is replaced: the caller
/// holds the lock of the directory.
///
/// `usage` is the usage by pod, if it is observed.
pub fn listen(folder: &Path, usage: Option<watch::Receiver<Arc<Usage>>>) -> io::Result<Desk> {
    let path = folder.join(SOCKET);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let owner = fs::metadata(&path)?.uid();
    let (ask, asked) = mpsc::channel(MOST);
    let (status, watched) = watch::channel(Arc::new(Status::default()));
    info!("listening for commands on {}", path.display());
    let told = Told {
        status: watched,
        usage,
    };
    let mut accepting = JoinSet::new();
    accepting.spawn(accept(listener, owner, ask, told));
    Ok(Desk {
        asked,
        status,
        accepting,
        _file: SocketFile(path),
    })
}

async fn accept(listener: UnixListener, owner: u32, ask: mpsc::Sender<Asked>, told: Told) {
    let seats = Arc::new(Semaphore::new(MOST));
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
                    tokio::time::sleep(PATIENCE).await;
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

async fn serve(stream: UnixStream, ask: mpsc::Sender<Asked>, told: Told) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let limit = u64::try_from(LONGEST_LINE).unwrap_or(u64::MAX);
    let mut reader = BufReader::new(reader.take(limit));
    let mut text = String::new();
    timeout(PATIENCE, reader.read_line(&mut text)).await??;
    let answer = match serde_json::from_str::<Request>(&text) {
        Ok(Request::Usage {}) => match told.usage {
            Some(usage) => return follow(reader, writer, usage, usage_said).await,
            None => Some(Answer::Refused {
                reason:
                    "nobody looks at who uses what here: the agent runs without --usage-interval (the chart: agent.usage.interval)"
                        .to_owned(),
            }),
        },
        Ok(Request::Watch {}) => None,
        Ok(Request::Apply(choice)) => Some(decide(&ask, Some(choice)).await),
        Ok(Request::Forget {}) => Some(decide(&ask, None).await),
        Err(error) => Some(Answer::Refused {
            reason: format!("cannot read what is asked for: {error}"),
        }),
    };
    if let Some(answer) = answer {
        say(&mut writer, &answer).await?;
        if matches!(answer, Answer::Refused { .. }) {
            return Ok(());
        }
    }
    follow(reader, writer, told.status, |status| {
        Answer::Status(Box::new(Status::clone(status)))
    })
    .await
}

fn usage_said(usage: &Usage) -> Answer {
    Answer::Usage(UsageJson::from(usage))
}

/// Sends the current value, and each new one, until the command disconnects.
async fn follow<T>(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWriteExt + Unpin,
    mut known: watch::Receiver<Arc<T>>,
    said: impl Fn(&T) -> Answer,
) -> io::Result<()> {
    let mut rest = [0];
    loop {
        let now = Arc::clone(&known.borrow_and_update());
        say(&mut writer, &said(&now)).await?;
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
async fn decide(ask: &mpsc::Sender<Asked>, choice: Option<Choice>) -> Answer {
    let (reply, answer) = oneshot::channel();
    let gone = || Answer::Refused {
        reason: "the agent is stopping".to_owned(),
    };
    if ask.send(Asked { choice, reply }).await.is_err() {
        return gone();
    }
    match answer.await {
        Ok(Ok(generation)) => Answer::Accepted { generation },
        Ok(Err(reason)) => Answer::Refused { reason },
        Err(_) => gone(),
    }
}

async fn say(writer: &mut (impl AsyncWriteExt + Unpin), answer: &Answer) -> io::Result<()> {
    timeout(PATIENCE, writer.write_all(line(answer).as_bytes())).await?
}
