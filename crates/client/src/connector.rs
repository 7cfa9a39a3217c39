//! Connections to the aggregator: to its address, or through the API server to its pod.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use octavo_kube::aggregator_access::AggregatorAccess;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt, service_fn};

/// Opens connections without TLS, which the layer above adds.
pub(super) type Connector = BoxCloneSyncService<Uri, TokioIo<Transport>, BoxError>;

/// A connection.
pub(super) struct Transport(Box<dyn Stream>);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Transport {
    fn new(stream: impl Stream + 'static) -> TokioIo<Self> {
        TokioIo::new(Self(Box::new(stream)))
    }
}

/// Connects to the address in the URL.
pub(super) fn direct() -> Connector {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    Connector::new(
        http.map_response(|stream| Transport::new(stream.into_inner())).map_err(Into::into),
    )
}

/// Connects to the aggregator's ready pod.
pub(super) fn forwarded(access: Arc<AggregatorAccess>) -> Connector {
    Connector::new(service_fn(move |_: Uri| {
        let access = Arc::clone(&access);
        async move { Ok::<_, BoxError>(Transport::new(access.dial().await?)) }
    }))
}

impl Connection for Transport {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
