//! Connections to the aggregator.

use std::future::Future;

use octavo_client::endpoint::{AggregatorEndpoint, ConnectError};
use octavo_fleet::credential::Token;
use tonic::transport::Channel;

/// Connects to an aggregator; the uplink requests one connection at a time.
pub trait Connector {
    /// Opens a connection.
    fn dial(&self) -> impl Future<Output = Result<Channel, ConnectError>> + Send;

    /// Returns the token that authenticates the agent; `None` if no token is configured.
    fn token(&self) -> Result<Option<Token>, ConnectError>;

    /// Returns the aggregator's name for log messages.
    fn name(&self) -> String;
}

impl Connector for AggregatorEndpoint {
    async fn dial(&self) -> Result<Channel, ConnectError> {
        self.connect().await
    }

    fn token(&self) -> Result<Option<Token>, ConnectError> {
        Self::token(self)
    }

    fn name(&self) -> String {
        Self::name(self)
    }
}
