//! Downloads of files that do not fit into memory.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::{Client, ClientError, RequestError, RequestPath};

/// A download in progress. The end of the file and a broken connection are different results.
#[derive(Debug)]
pub struct Download<'a> {
    pub(crate) client: &'a Client,
    pub(crate) target: RequestPath,
    pub(crate) body: Incoming,
}

impl Download<'_> {
    /// Waits for the next part; `None` at the end of the file. The time limit of the client applies to each part.
    ///
    /// # Errors
    /// Fails if the connection breaks, or no part arrives in time.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let limit = self.client.timeout;
            let frame = timeout(limit, self.body.frame()).await;
            let frame = frame.map_err(|_| RequestError::TimedOut(limit)).and_then(|frame| {
                frame.transpose().map_err(|error| RequestError::Broken(error.into()))
            });
            let frame = frame.map_err(|source| self.client.failed(&self.target, source))?;
            match frame.map(hyper::body::Frame::into_data) {
                None => return Ok(None),
                Some(Ok(part)) => return Ok(Some(part)),
                // Trailers have no data.
                Some(Err(_)) => {}
            }
        }
    }
}
