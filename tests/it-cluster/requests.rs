//! Requests to an aggregator's API that only tests with an API server need.

use serde_json::Value;
use tokio::io::AsyncReadExt;

use crate::fleet_api::{Answer, Api};
use crate::time_limits::within;

impl Api {
    /// The same API, with this header in every request.
    pub(crate) fn with_header(&self, header: &str) -> Self {
        let mut api = self.clone();
        api.headers = format!("{}{header}\r\n", self.headers);
        api
    }

    /// The status of a response, whose body may be endless.
    pub(crate) async fn status(&self, path: &str) -> u16 {
        let mut line = [0; 12];
        let reading = async { self.ask(path).await.read_exact(&mut line).await };
        within(path, reading).await.unwrap();
        let line = std::str::from_utf8(&line).unwrap();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Posts a document.
    pub(crate) async fn post(&self, path: &str, document: &Value) -> Answer {
        self.whole("POST", path, &document.to_string()).await
    }
}
