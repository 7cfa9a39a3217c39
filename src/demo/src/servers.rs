//! Servers of the simulated cluster. They own their connections, so that none is left when they have stopped.

use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use octavo_toolkit::tasks::first_panic;
use tokio::sync::watch;
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

/// Serves until `stop` is true or its sender is dropped. The error is the panic of a connection.
async fn serve(
    mut listener: impl Listener,
    router: Router,
    mut stop: watch::Receiver<bool>,
) -> Result<(), JoinError> {
    let builder = auto::Builder::new(TokioExecutor::new());
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _stopped = stop.wait_for(|stop| *stop) => break,
            error = first_panic(&mut connections) => return Err(error),
            (socket, _) = listener.accept() => {
                let service = TowerToHyperService::new(router.clone());
                let connection = builder.serve_connection(TokioIo::new(socket), service);
                let connection = graceful.watch(connection.into_owned());
                connections.spawn(async move {
                    let _closed_by_client = connection.await;
                });
            }
        }
    }
    drop(listener);
    let _late = timeout(GRACE, graceful.shutdown()).await;
    connections.shutdown().await;
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
}
