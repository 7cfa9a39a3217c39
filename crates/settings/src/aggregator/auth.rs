//! Settings of the authentication of agents.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use octavo_fleet::credential::{AcceptanceRule, Audience, ServiceAccount};

use super::{ServingSettings, Transport, usage};
use crate::Answer;
use crate::kubernetes::KubernetesSettings;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Authentication")]
pub(super) struct AuthArgs {
    /// What an agent has to prove before it may report
    #[arg(
        long = "agent-auth",
        value_name = "HOW",
        env = "OCTAVO_AGENT_AUTH",
        default_value = "none"
    )]
    auth: AgentAuthArg,

    /// As whom agents run, with --agent-auth token-review
    #[arg(
        long = "agent-service-account",
        value_name = "NAMESPACE/NAME",
        env = "OCTAVO_AGENT_SERVICE_ACCOUNT",
        default_value = "octavo-system/octavo-agent"
    )]
    service_account: ServiceAccount,

    /// For whom agents' tokens are, with --agent-auth token-review
    ///
    /// Tokens for another audience do not count, those for the API server included.
    #[arg(
        long = "agent-audience",
        value_name = "AUDIENCE",
        env = "OCTAVO_AGENT_AUDIENCE",
        default_value = "octavo"
    )]
    audience: Audience,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AgentAuthArg {
    /// Nothing: whoever reaches the port reports as any node
    None,
    /// Its node, with its pod's token, which the cluster's API server reviews
    TokenReview,
}

/// Authentication of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentAuth {
    /// None.
    None,
    /// By the token of the agent's pod, which proves its node.
    TokenReview(TokenReviewSettings),
}

/// Accepted tokens, and the cluster that reviews them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenReviewSettings {
    rule: AcceptanceRule,
    kubeconfig: Option<PathBuf>,
}

impl TokenReviewSettings {
    /// Returns which tokens are accepted.
    pub fn rule(&self) -> &AcceptanceRule {
        &self.rule
    }

    /// Returns the cluster that reviews tokens; `None` for the one of this pod.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }
}

impl AuthArgs {
    pub(super) fn resolve(
        self,
        kubernetes: KubernetesSettings,
        serving: &ServingSettings,
    ) -> Result<AgentAuth, Answer> {
        match self.auth {
            AgentAuthArg::None => Ok(AgentAuth::None),
            AgentAuthArg::TokenReview => {
                let open = *serving.transport() == Transport::Plaintext;
                if open && !serving.grpc_listen().ip().is_loopback() {
                    return Err(usage(
                        "--agent-auth token-review with --plaintext: agents would send their tokens unencrypted, for \
                         anybody on the way to take. Use --tls-cert and --tls-key, or a --grpc-listen address of \
                         this machine alone, such as 127.0.0.1:7443",
                    ));
                }
                Ok(AgentAuth::TokenReview(TokenReviewSettings {
                    rule: AcceptanceRule {
                        account: self.service_account,
                        audience: self.audience,
                    },
                    kubeconfig: kubernetes.kubeconfig,
                }))
            }
        }
    }
}
