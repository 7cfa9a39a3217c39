//! Requests that are repeated after errors that may be temporary.

use std::time::Duration;

use octavo_model::backoff::Backoff;
use tokio::time::{Instant, sleep_until};

use crate::client::RequestError;

/// Delays without a request of the API server for another one.
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(15) };

/// Failures of one request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Failures(u32);

impl Failures {
    /// Returns whether there was a failure.
    pub(super) fn is_any(self) -> bool {
        self.0 > 0
    }

    /// Records a failure. Returns the time of the next request; `None` if the error is final or that time is not before `until`.
    pub(super) fn retry_at(&mut self, error: &RequestError, until: Instant) -> Option<Instant> {
        let delay = error.retry_after().unwrap_or_else(|| BACKOFF.delay(self.0));
        self.0 = self.0.saturating_add(1);
        let at = Instant::now().checked_add(delay)?;
        (is_temporary(error) && at < until).then_some(at)
    }
}

/// Returns whether an error may be temporary. Without a response, a connection may have been interrupted.
fn is_temporary(error: &RequestError) -> bool {
    matches!(error.code(), None | Some(408 | 429 | 500 | 502 | 503 | 504))
}

/// Repeats a request that the API server rejects for a time. An API server that does not respond is an error immediately: its address
/// may be wrong.
pub(super) async fn repeated<T, R>(
    limit: Duration,
    mut send: impl FnMut() -> R,
) -> Result<T, RequestError>
where
    R: Future<Output = Result<T, RequestError>>,
{
    let until = Instant::now() + limit;
    let mut failures = Failures::default();
    loop {
        let error = match send().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let at = failures.retry_at(&error, until).filter(|_| error.code().is_some());
        let Some(at) = at else { return Err(error) };
        sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    fn refused(code: u16, retry_after: u64) -> RequestError {
        let details = json!({"retryAfterSeconds": retry_after});
        let status = json!({"code": code, "message": "later", "details": details});
        let status: Status = serde_json::from_value(status).unwrap();
        RequestError::Refused(Box::new(kube::Error::Api(Box::new(status))))
    }

    /// Sends a request that is refused with these codes, and then accepted. Returns the result, the number of requests, and the seconds.
    async fn send(codes: &[u16], retry_after: u64) -> (Result<(), Option<u16>>, usize, u64) {
        let (began, mut sent) = (Instant::now(), 0);
        let result = repeated(Duration::from_mins(1), || {
            let code = codes.get(sent).copied();
            sent += 1;
            async move { code.map_or(Ok(()), |code| Err(refused(code, retry_after))) }
        });
        let result = result.await.map_err(|error| error.code());
        (result, sent, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn temporary_errors_are_retried_with_the_requested_delay_until_the_limit() {
        assert_eq!(send(&[429, 503], 7).await, (Ok(()), 3, 14));
        assert_eq!(send(&[500, 500, 504], 0).await, (Ok(()), 4, 7));
        assert_eq!(send(&[403, 403], 0).await, (Err(Some(403)), 1, 0));
        assert_eq!(send(&[429; 9], 25).await, (Err(Some(429)), 3, 50));
    }
}
