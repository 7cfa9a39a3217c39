//! Settings of the authentication of agents.

use clap::ValueEnum;
use octavo_fleet::credential::{AcceptanceRule, Audience, ServiceAccount};
use octavo_settings::Answer;

use super::{ServingSettings, usage};

/// Settings of the authentication of agents.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Authentication")]
pub struct AgentAuthSettings {
    /// What an agent has to prove before it may report
    #[arg(
        long,
        value_name = "HOW",
        env = "OCTAVO_AGENT_AUTH",
        default_value = "none"
    )]
    pub agent_auth: AgentAuth,

    /// As whom agents run, with --agent-auth token-review
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "OCTAVO_AGENT_SERVICE_ACCOUNT",
        default_value = "octavo-system/octavo-agent"
    )]
    pub agent_service_account: ServiceAccount,

    /// For whom agents' tokens are, with --agent-auth token-review
    ///
    /// Tokens for another audience do not count, those for the API server included.
    #[arg(
        long,
        value_name = "AUDIENCE",
        env = "OCTAVO_AGENT_AUDIENCE",
        default_value = "octavo"
    )]
    pub agent_audience: Audience,
}

/// Authentication of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AgentAuth {
    /// Nothing: whoever reaches the port reports as any node
    None,
    /// Its node, with its pod's token, which the cluster's API server reviews
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
    pub(super) fn check(&self, serving: &ServingSettings) -> Result<(), Answer> {
        let is_open = serving.plaintext && !serving.grpc_listen.ip().is_loopback();
        if self.agent_auth == AgentAuth::TokenReview && is_open {
            return Err(usage(
                "--agent-auth token-review with --plaintext: agents would send their tokens unencrypted, for \
                 anybody on the way to take. Use --tls-cert and --tls-key, or a --grpc-listen address of \
                 this machine alone, such as 127.0.0.1:7443",
            ));
        }
        Ok(())
    }
}
