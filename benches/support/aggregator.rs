//! The aggregator as it ships, as a process, and what it costs from `/proc`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running aggregator; ended when dropped.
pub(crate) struct Aggregator {
    child: Child,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
}

/// How it serves.
#[derive(Clone)]
pub(crate) enum Serving {
    /// Without TLS.
    Plain,
    /// With this certificate and key.
    Tls(PathBuf, PathBuf),
}

/// Where it listens.
#[derive(Clone, Copy)]
pub(crate) struct Listen {
    pub(crate) grpc: u16,
    pub(crate) http: u16,
}

/// One answer over HTTP.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) bytes: usize,
    pub(crate) body: String,
    pub(crate) took: Duration,
}

impl Listen {
    /// Wherever there is room.
    pub(crate) const ANYWHERE: Self = Self { grpc: 0, http: 0 };
}

impl Aggregator {
    /// Starts it and waits until it listens on both ports.
    pub(crate) fn start(serving: &Serving, listen: Listen) -> Self {
        Self::start_with(serving, listen, &[])
    }

    /// The same with more arguments.
    pub(crate) fn start_with(serving: &Serving, listen: Listen, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_octavo-aggregator"));
        command
            .arg(format!("--grpc-listen=127.0.0.1:{}", listen.grpc))
            .arg(format!("--http-listen=127.0.0.1:{}", listen.http))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        match serving {
            Serving::Plain => command.arg("--plaintext"),
            Serving::Tls(certificate, key) => {
                command.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key)
            }
        };
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut address_after = |words: &str| loop {
            let line = lines.next().expect("the aggregator ended").unwrap();
            if let Some((_, rest)) = line.split_once(words) {
                let address = rest.split_whitespace().next().unwrap();
                return address.parse().unwrap();
            }
        };
        let grpc = address_after("listening for agents on ");
        let http = address_after("listening for HTTP clients on ");
        // What it logs later is read away, so that it never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, grpc, http }
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The ports, to come back to.
    pub(crate) fn listen(&self) -> Listen {
        Listen { grpc: self.grpc.port(), http: self.http.port() }
    }

    /// Ends it as a power cut does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Resident memory that is its own, in KiB. Source: `/proc/PID/smaps_rollup`, Pss.
    pub(crate) fn pss_kib(&self) -> f64 {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with("Pss:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// CPU time of the threads whose name starts with `name`, so far.
    pub(crate) fn cpu(&self, name: &str) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        let nanos = tasks.map(|task| {
            let task = task.unwrap().path();
            let comm = fs::read_to_string(task.join("comm")).unwrap_or_default();
            if !comm.starts_with(name) {
                return 0;
            }
            let account = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
            account.split_whitespace().next().map_or(0, |ns| ns.parse().unwrap())
        });
        Duration::from_nanos(nanos.sum())
    }
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _gone_already = self.child.wait();
    }
}

/// Asks for `path`, and waits for the whole answer.
pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let took = start.elapsed();
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    Answer { status, bytes: answer.len(), body: body.to_owned(), took }
}
