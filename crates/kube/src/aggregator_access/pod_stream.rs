//! A connection to a port of a pod, forwarded by the API server and the kubelet.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use kube::api::Portforwarder;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::AccessError;

type Failure = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// A forwarded connection. The end of the stream is an error if the kubelet reports one, for example that no process
/// listens on the port.
pub struct PodStream {
    stream: DuplexStream,
    failure: Option<Failure>,
    pod: String,
    port: u16,
}

impl PodStream {
    pub(super) fn new(
        forwarded: &mut Portforwarder,
        pod: &str,
        port: u16,
    ) -> Result<Self, AccessError> {
        let (stream, failure) = (forwarded.take_stream(port), forwarded.take_error(port));
        let refused = || AccessError::Refused {
            pod: pod.to_owned(),
            port,
            reason: "the API server does not forward it".to_owned(),
        };
        Ok(Self {
            stream: stream.ok_or_else(refused)?,
            failure: failure.map(|failure| Box::pin(failure) as Failure),
            pod: pod.to_owned(),
            port,
        })
    }

    /// Returns the failure that the kubelet has reported, if there is one.
    fn reported_failure(&mut self, context: &mut Context<'_>) -> Option<io::Error> {
        let failure = self.failure.as_mut()?;
        let Poll::Ready(reason) = failure.as_mut().poll(context) else {
            return None;
        };
        self.failure = None;
        let refused = AccessError::Refused {
            pod: self.pod.clone(),
            port: self.port,
            reason: reason?.trim().to_owned(),
        };
        Some(io::Error::new(io::ErrorKind::ConnectionAborted, refused))
    }
}

impl AsyncRead for PodStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() == before
            && let Some(failure) = self.reported_failure(context)
        {
            return Poll::Ready(Err(failure));
        }
        read
    }
}

impl AsyncWrite for PodStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl fmt::Debug for PodStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PodStream({}:{})", self.pod, self.port)
    }
}
