//! Clients that keep their connection and ask again as soon as they have their answer, on a thread of their own.
//!
//! Spoken by hand: as little as a client can do, so that what is measured is the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::Barrier;

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    /// What was read of the answer.
    read: Vec<u8>,
}

/// What clients were answered.
pub(crate) struct Answers {
    /// Each answer's time, in milliseconds.
    pub(crate) times: Vec<f64>,
    /// Of the last answer, its head included.
    pub(crate) bytes: usize,
    pub(crate) took: Duration,
    /// Time of a processor that the clients' thread needed.
    pub(crate) cpu: Duration,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, read: Vec::with_capacity(1 << 17) }
    }

    /// The body of an answer that must be a good one; and its size with its head.
    pub(crate) async fn get(&mut self, path: &str) -> (&[u8], usize) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await.unwrap();
        self.read.clear();
        let head = loop {
            self.more().await;
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = std::str::from_utf8(&self.read[..head]).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{path}: {text}");
        let length = text.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().unwrap())
        });
        let end = head + length.unwrap();
        while self.read.len() < end {
            self.more().await;
        }
        (&self.read[head..end], end)
    }

    async fn more(&mut self) {
        let count = self.stream.read_buf(&mut self.read).await.unwrap();
        assert!(count > 0, "the aggregator closed a connection");
    }
}

/// So many clients ask for `paths`, one after the other, for a while. With a `pause` each waits so long between two questions, and
/// they do not all ask at once.
pub(crate) fn ask(
    address: SocketAddr,
    paths: &[&str],
    count: usize,
    span: Duration,
    pause: Option<Duration>,
) -> Answers {
    let paths: Arc<[String]> = paths.iter().map(|&path| path.to_owned()).collect();
    let asking = move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(all(address, &paths, count, span, pause))
    };
    let thread = thread::Builder::new().name("clients".to_owned());
    thread.spawn(asking).unwrap().join().unwrap()
}

async fn all(
    address: SocketAddr,
    paths: &Arc<[String]>,
    count: usize,
    span: Duration,
    pause: Option<Duration>,
) -> Answers {
    // The first answer is made of all there is.
    let mut first = Client::connect(address).await;
    for path in paths.iter() {
        first.get(path).await;
    }
    let connected = Arc::new(Barrier::new(count));
    let clients: Vec<_> = (0..count)
        .map(|number| {
            let (paths, connected) = (Arc::clone(paths), Arc::clone(&connected));
            tokio::spawn(async move {
                let mut client = Client::connect(address).await;
                connected.wait().await;
                let start = Instant::now();
                if let Some(pause) = pause {
                    let share = f64::from(u32::try_from(number).unwrap());
                    let of = f64::from(u32::try_from(count).unwrap());
                    tokio::time::sleep(pause.mul_f64(share / of)).await;
                }
                let (mut times, mut bytes) = (Vec::new(), 0);
                for path in paths.iter().cycle().skip(number % paths.len()) {
                    if start.elapsed() >= span {
                        break;
                    }
                    let began = Instant::now();
                    bytes = client.get(path).await.1;
                    times.push(began.elapsed().as_secs_f64() * 1e3);
                    if let Some(pause) = pause {
                        tokio::time::sleep(pause).await;
                    }
                }
                (times, bytes)
            })
        })
        .collect();
    let (start, began) = (Instant::now(), own_cpu());
    let (mut times, mut bytes) = (Vec::new(), 0);
    for client in clients {
        let (some, size) = client.await.unwrap();
        times.extend(some);
        bytes = size;
    }
    Answers { times, bytes, took: start.elapsed(), cpu: own_cpu().saturating_sub(began) }
}

/// Of this thread until now.
fn own_cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}
