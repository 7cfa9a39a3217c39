//! HTTP clients with persistent connections, which send the next request as soon as they receive a response.
//!
//! They run on a separate thread and do as little work as possible, so that the measurement shows the server.

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
    /// Received bytes of the current response.
    received: Vec<u8>,
}

/// Responses to all clients.
pub(crate) struct Responses {
    /// Response times in milliseconds.
    pub(crate) times: Vec<f64>,
    /// Size of the last response with its headers.
    pub(crate) bytes: usize,
    /// Duration of the measurement.
    pub(crate) time: Duration,
    /// CPU time of the clients' thread.
    pub(crate) cpu: Duration,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::with_capacity(1 << 17) }
    }

    /// Returns the body of the response and its size with headers. The status must be 200.
    pub(crate) async fn get(&mut self, path: &str) -> (&[u8], usize) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await.unwrap();
        self.received.clear();
        let head = loop {
            self.receive().await;
            if let Some(end) = self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = std::str::from_utf8(&self.received[..head]).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{path}: {text}");
        let length = text.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().unwrap())
        });
        let end = head + length.unwrap();
        while self.received.len() < end {
            self.receive().await;
        }
        (&self.received[head..end], end)
    }

    async fn receive(&mut self) {
        let count = self.stream.read_buf(&mut self.received).await.unwrap();
        assert!(count > 0, "the aggregator closed a connection");
    }
}

/// Measures `count` clients that request `paths` in turn for `span`. With a `pause`, each client waits between requests, and the
/// clients do not start at the same time.
pub(crate) fn measure(
    address: SocketAddr,
    paths: &[&str],
    count: usize,
    span: Duration,
    pause: Option<Duration>,
) -> Responses {
    let paths: Arc<[String]> = paths.iter().map(|&path| path.to_owned()).collect();
    let run = move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run_clients(address, &paths, count, span, pause))
    };
    let thread = thread::Builder::new().name("clients".to_owned());
    thread.spawn(run).unwrap().join().unwrap()
}

async fn run_clients(
    address: SocketAddr,
    paths: &Arc<[String]>,
    count: usize,
    span: Duration,
    pause: Option<Duration>,
) -> Responses {
    // The first request calculates the response; it is not measured.
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
                    let number = f64::from(u32::try_from(number).unwrap());
                    let count = f64::from(u32::try_from(count).unwrap());
                    tokio::time::sleep(pause.mul_f64(number / count)).await;
                }
                let (mut times, mut bytes) = (Vec::new(), 0);
                for path in paths.iter().cycle().skip(number % paths.len()) {
                    if start.elapsed() >= span {
                        break;
                    }
                    let sent = Instant::now();
                    bytes = client.get(path).await.1;
                    times.push(sent.elapsed().as_secs_f64() * 1e3);
                    if let Some(pause) = pause {
                        tokio::time::sleep(pause).await;
                    }
                }
                (times, bytes)
            })
        })
        .collect();
    let (start, cpu) = (Instant::now(), thread_cpu_time());
    let (mut times, mut bytes) = (Vec::new(), 0);
    for client in clients {
        let (client_times, size) = client.await.unwrap();
        times.extend(client_times);
        bytes = size;
    }
    let cpu = thread_cpu_time().saturating_sub(cpu);
    Responses { times, bytes, time: start.elapsed(), cpu }
}

/// CPU time of this thread.
fn thread_cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}
