//! Servers of the simulated cluster. They own their connections and the streams of HTTP/2, so that none is left when they
//! have stopped.

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use octavo_toolkit::tasks::first_panic;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

/// Time for open requests when the servers stop. A user's watch does not end by itself.
const GRACE: Duration = Duration::from_secs(1);

/// The running API server and kubelets, which are aborted when this is dropped.
#[derive(Debug, Default)]
pub struct Servers {
    running: JoinSet<Result<(), JoinError>>,
    stop: watch::Sender<bool>,
}

impl Servers {
    /// Starts a server for HTTP/1.1 and HTTP/2.
    pub(crate) fn start(&mut self, listener: impl Listener, router: Router) {
        self.running.spawn(serve(listener, router, self.stop.subscribe()));
    }

    /// Resolves when a server or one of its connections panics.
    pub async fn failed(&mut self) -> JoinError {
        while let Some(ended) = self.running.join_next().await {
            if let Err(error) = ended.flatten() {
                return error;
            }
        }
        pending().await
    }

    /// Stops all servers, and returns when no connection is left.
    pub async fn stop(&mut self) {
        self.stop.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

/// A task of an HTTP/2 connection: a stream.
type StreamTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Sends the tasks of connections to their server. `TokioExecutor` would detach them, and hide their panics.
#[derive(Debug, Clone)]
struct StreamExecutor(mpsc::UnboundedSender<StreamTask>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, task: F) {
        // An error means that the server has stopped, and the connection is about to be aborted.
        let _stopped = self.0.send(Box::pin(task));
    }
}

/// Serves until `stop` is true or its sender is dropped. The error is the panic of a connection or of a stream.
async fn serve(
    mut listener: impl Listener,
    router: Router,
    mut stop: watch::Receiver<bool>,
) -> Result<(), JoinError> {
    // HTTP/2 limits the number of streams of a connection.
    let (executor, mut streams) = mpsc::unbounded_channel();
    let builder = auto::Builder::new(StreamExecutor(executor));
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            _stopped = stop.wait_for(|stop| *stop) => break,
            error = first_panic(&mut tasks) => return Err(error),
            Some(stream) = streams.recv() => {
                tasks.spawn(stream);
            }
            (socket, _) = listener.accept() => {
                let service = TowerToHyperService::new(router.clone());
                let connection = builder.serve_connection(TokioIo::new(socket), service);
                let connection = graceful.watch(connection.into_owned());
                tasks.spawn(async move {
                    let _closed_by_client = connection.await;
                });
            }
        }
    }
    drop(listener);
    let closed = timeout(GRACE, graceful.shutdown());
    tokio::pin!(closed);
    loop {
        tokio::select! {
            _late = &mut closed => break,
            // Of requests that were received before the connection was closed.
            Some(stream) = streams.recv() => {
                tasks.spawn(stream);
            }
        }
    }
    tasks.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;

    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn stopped_servers_leave_no_connection() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let endless = || async { Body::from_stream(tokio_stream::pending::<io::Result<&str>>()) };
        let mut servers = Servers::default();
        servers.start(listener, Router::new().route("/", get(endless)));
        let mut idle = TcpStream::connect(address).await.unwrap();
        let mut busy = TcpStream::connect(address).await.unwrap();
        busy.write_all(b"GET / HTTP/1.1\r\nhost: demo\r\n\r\n").await.unwrap();
        let mut head = [0; 12];
        busy.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        servers.stop().await;
        let mut rest = Vec::new();
        for connection in [&mut idle, &mut busy] {
            // An aborted connection may be reset instead of closed.
            let _end = connection.read_to_end(&mut rest).await;
        }
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    async fn panics() -> StatusCode {
        panic!("on purpose")
    }

    #[tokio::test]
    async fn panic_of_a_connection_is_reported() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut servers = Servers::default();
        servers.start(listener, Router::new().route("/", get(panics)));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: demo\r\n\r\n").await.unwrap();
        assert!(servers.failed().await.is_panic());
    }

    #[tokio::test]
    async fn panic_of_an_http2_stream_is_reported() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut servers = Servers::default();
        servers.start(listener, Router::new().route("/", get(panics)));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let settings = b"\0\0\0\x04\0\0\0\0\0";
        // The headers `:method: GET`, `:scheme: http`, `:path: /` and `:authority: demo` of stream 1, which end it.
        let headers = b"\0\0\x09\x01\x05\0\0\0\x01\x82\x86\x84\x41\x04demo";
        client.write_all(&[&settings[..], headers].concat()).await.unwrap();
        assert!(servers.failed().await.is_panic());
    }
}
