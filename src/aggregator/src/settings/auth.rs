//! Settings of the authentication of agents.

use clap::ValueEnum;
use octavo_fleet::credential::{AcceptanceRule, Audience, ServiceAccount};
use octavo_settings::EarlyExit;

use super::{ServingSettings, usage};

/// Settings of the authentication of agents.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Authentication")]
pub struct AgentAuthSettings {
    /// Authentication of agents
    #[arg(long, value_name = "METHOD", env = "OCTAVO_AGENT_AUTH", default_value = "none")]
    pub agent_auth: AgentAuth,

    /// Service account of the agents, for --agent-auth token-review
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "OCTAVO_AGENT_SERVICE_ACCOUNT",
        default_value = "octavo-system/octavo-agent"
    )]
    pub agent_service_account: ServiceAccount,

    /// Audience of the agents' tokens, for --agent-auth token-review
    ///
    /// Tokens for other audiences are rejected, including tokens for the API server.
    #[arg(long, value_name = "AUDIENCE", env = "OCTAVO_AGENT_AUDIENCE", default_value = "octavo")]
    pub agent_audience: Audience,
}

/// Authentication of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AgentAuth {
    /// No authentication: any client that can reach the port can report as any node
    None,
    /// Token of the agent's pod, reviewed by the API server; an agent can report only its own node
    TokenReview,
}

impl AgentAuthSettings {
    /// Returns which tokens are accepted; `None` if agents are not authenticated.
    pub fn rule(&self) -> Option<AcceptanceRule> {
        (self.agent_auth == AgentAuth::TokenReview).then(|| AcceptanceRule {
            account: self.agent_service_account.clone(),
            audience: self.agent_audience.clone(),
        })
    }

    /// Rejects tokens over an unencrypted connection.
    pub(super) fn check(&self, serving: &ServingSettings) -> Result<(), EarlyExit> {
        let is_open = serving.plaintext && !serving.grpc_listen.ip().is_loopback();
        if self.agent_auth == AgentAuth::TokenReview && is_open {
            return Err(usage(
                "--agent-auth token-review with --plaintext: agents would send their tokens \
                 unencrypted over the network. Use --tls-cert and --tls-key, or a loopback \
                 address for --grpc-listen, such as 127.0.0.1:7443",
            ));
        }
        Ok(())
    }
}
