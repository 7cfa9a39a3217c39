//! The agent's socket: commands on the same node choose a layout through it, and watch what becomes of it.
//!
//! Whoever may connect to it may re-partition the node, so it is in a folder and of a mode that only root, or the agent's own
//! user, can use, and who connects is asked of the kernel once more.

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

/// Commands that are listened to at once.
const MOST: usize = 8;
/// How long a command may take to say what it wants, and to read what it is told.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something a command asks for, which the agent's loop does.
#[derive(Debug)]
pub struct Asked {
    /// The layout that is chosen; `None` goes back to that of the settings.
    pub choice: Option<Choice>,
    /// Its generation, or why not.
    pub reply: oneshot::Sender<Result<u64, String>>,
}

/// The loop's end of the socket.
#[derive(Debug)]
pub struct Desk {
    /// What commands ask for.
    asked: mpsc::Receiver<Asked>,
    /// Where the node stands, for those who watch.
    pub status: watch::Sender<Arc<Status>>,
    accepting: JoinSet<()>,
    /// The socket's file, which goes with this.
    _file: SocketFile,
}

impl Desk {
    /// What a command asks for next; `None` once none is accepted any more.
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

/// A socket's file; removed when this is dropped, which is before the lock of the directory is released.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _gone_already = fs::remove_file(&self.0);
    }
}

/// What commands can be told.
#[derive(Debug, Clone)]
struct Told {
    status: watch::Receiver<Arc<Status>>,
    usage: Option<watch::Receiver<Arc<Usage>>>,
}

/// Listens in `folder` until the desk is dropped. A socket that an agent before this one left is replaced: whoever calls this
/// holds the lock of the folder.
///
/// `usage` is who has what, where somebody looks.
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
        // A panic of one is in the log.
        while commands.try_join_next().is_some() {}
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            () = ask.closed() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of files, most likely: others have to close some first.
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

/// Says what is known, and says it again whenever that changes, until the command goes.
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
            // Nothing more is expected of it: it says something, or has gone.
            _ = reader.read(&mut rest) => return Ok(()),
            changed = known.changed() => if changed.is_err() {
                return Ok(());
            },
        }
    }
}

/// The loop's answer; it may be some time in coming, as the loop ends what it is doing first.
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
