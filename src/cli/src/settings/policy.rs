//! Settings of `octavo policy`.

use clap::{Args, Subcommand, ValueHint};
use octavo_client::ServerSettings;

use super::Input;
use super::fleet::OutputOptions;

/// Settings of `octavo policy`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum PolicyCommand {
    /// Preview the roll-out of a policy
    #[command(after_long_help = include_str!("../../help/policy.txt"))]
    Plan(PolicyPlanSettings),
    /// Apply the manifest of a policy, after a preview
    #[command(after_long_help = include_str!("../../help/policy.txt"))]
    Apply(PolicyApplySettings),
    /// List policies, or show the progress of one
    #[command(after_long_help = include_str!("../../help/policy.txt"))]
    Status(PolicyStatusSettings),
    /// Pause the roll-out of a policy
    #[command(after_long_help = include_str!("../../help/policy.txt"))]
    Pause(PolicyTarget),
    /// Resume a paused roll-out
    #[command(after_long_help = include_str!("../../help/policy.txt"))]
    Resume(PolicyTarget),
    /// Approve instances that a policy proposes for pending pods
    #[command(after_long_help = include_str!("../../help/policy.txt"))]
    Approve(ApproveSettings),
    /// Return the nodes of a policy to an earlier revision
    #[command(after_long_help = include_str!("../../help/policy.txt"))]
    Rollback(RollbackSettings),
    /// List the retained revisions of a policy
    #[command(after_long_help = include_str!("../../help/policy.txt"))]
    History(PolicyHistorySettings),
}

/// Settings of `octavo policy plan`.
#[derive(Debug, Clone, Args)]
pub struct PolicyPlanSettings {
    /// Policy to plan.
    #[command(flatten)]
    pub policy: PlannedPolicy,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Manifest of a policy, or name of a policy of the cluster.
#[derive(Debug, Clone, Args)]
#[group(id = "planned_policy", required = true, multiple = false)]
pub struct PlannedPolicy {
    /// Manifest of the policy; - for standard input
    #[arg(short = 'f', long = "file", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub file: Option<Input>,

    /// Name of a policy of the cluster
    #[arg(value_name = "POLICY")]
    pub name: Option<String>,
}

/// Settings of `octavo policy apply`.
#[derive(Debug, Clone, Args)]
pub struct PolicyApplySettings {
    /// Manifest of the policy; - for standard input
    #[arg(short = 'f', long = "file", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub file: Input,

    /// Apply without confirmation
    #[arg(short, long)]
    pub yes: bool,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Settings of `octavo policy status`.
#[derive(Debug, Clone, Args)]
pub struct PolicyStatusSettings {
    /// Policy to show in detail [default: list all policies]
    #[arg(value_name = "POLICY")]
    pub name: Option<String>,

    /// Keep watching for changes
    #[arg(short, long)]
    pub watch: bool,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// A policy of the cluster.
#[derive(Debug, Clone, Args)]
pub struct PolicyTarget {
    /// Name of the policy
    #[arg(value_name = "POLICY")]
    pub name: String,

    /// Cluster.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Settings of `octavo policy approve`.
#[derive(Debug, Clone, Args)]
pub struct ApproveSettings {
    /// Policy.
    #[command(flatten)]
    pub target: PolicyTarget,

    /// Nodes whose proposed instances to approve [default: all nodes]
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,

    /// Approve without confirmation
    #[arg(short, long)]
    pub yes: bool,
}

/// Settings of `octavo policy rollback`.
#[derive(Debug, Clone, Args)]
pub struct RollbackSettings {
    /// Revision, as `octavo policy history` lists it [default: the revision before the current one]
    #[arg(long, value_name = "REVISION")]
    pub to: Option<String>,

    /// Policy.
    #[command(flatten)]
    pub target: PolicyTarget,
}

/// Settings of `octavo policy history`.
#[derive(Debug, Clone, Args)]
pub struct PolicyHistorySettings {
    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Policy.
    #[command(flatten)]
    pub target: PolicyTarget,
}
