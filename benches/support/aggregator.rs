//! An aggregator as a separate process.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::process;

/// A running aggregator; killed when dropped.
pub(crate) struct Aggregator {
    child: Child,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
}

/// Transport security of both listeners.
#[derive(Clone)]
pub(crate) enum Serving {
    /// Without TLS.
    Plain,
    /// With this certificate and key.
    Tls(PathBuf, PathBuf),
}

/// Ports of the listeners.
#[derive(Clone, Copy)]
pub(crate) struct Listen {
    pub(crate) grpc: u16,
    pub(crate) http: u16,
}

/// An HTTP response.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) bytes: usize,
    pub(crate) body: String,
    pub(crate) time: Duration,
}

impl Listen {
    /// Any free ports.
    pub(crate) const ANYWHERE: Self = Self { grpc: 0, http: 0 };
}

impl Aggregator {
    /// Starts an aggregator and waits until it listens on both ports.
    pub(crate) fn start(serving: &Serving, listen: Listen) -> Self {
        Self::start_with(serving, listen, &[])
    }

    /// Like [`Self::start`], with further arguments.
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
        let mut address_after = |text: &str| loop {
            let line = lines.next().expect("the aggregator ended").unwrap();
            if let Some((_, rest)) = line.split_once(text) {
                let address = rest.split_whitespace().next().unwrap();
                return address.parse().unwrap();
            }
        };
        let grpc = address_after("listening for agents on ");
        let http = address_after("listening for HTTP clients on ");
        // Reads all further log lines, so that the process never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, grpc, http }
    }

    /// Returns the process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the ports, for a restart on the same ones.
    pub(crate) fn listen(&self) -> Listen {
        Listen { grpc: self.grpc.port(), http: self.http.port() }
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Returns the PSS in KiB.
    pub(crate) fn pss_kib(&self) -> f64 {
        process::memory(self.id()).pss * 1024.0
    }

    /// Returns the CPU time of the threads whose name starts with `name`.
    pub(crate) fn cpu(&self, name: &str) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        let nanos = tasks.map(|task| {
            let task = task.unwrap().path();
            let comm = fs::read_to_string(task.join("comm")).unwrap_or_default();
            if !comm.starts_with(name) {
                return 0;
            }
            let schedstat = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
            schedstat.split_whitespace().next().map_or(0, |ns| ns.parse().unwrap())
        });
        Duration::from_nanos(nanos.sum())
    }
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        let _already_exited = self.child.kill();
        let _already_exited = self.child.wait();
    }
}

/// Requests `path` on a new connection and waits for the whole response.
pub(crate) fn get(address: SocketAddr, path: &str) -> Response {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let time = start.elapsed();
    let text = String::from_utf8_lossy(&response);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    Response { status, bytes: response.len(), body: body.to_owned(), time }
}
