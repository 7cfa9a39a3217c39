//! Sources of the rows: an aggregator over HTTP, or the agent of this node through its socket.

use std::cmp::Reverse;
use std::io;
use std::path::Path;
use std::time::Duration;

use octavo_client::{Client, ClientError, RequestPath};
use octavo_engine::agent_socket::{self, Request, line};
use octavo_fleet::usage::{UsageList, UsageRow, rows};
use octavo_model::API_VERSION;
use octavo_node::sharing::usage::Usage;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use super::UsageRows;
use crate::CliError;
use crate::apply::connect;
use crate::settings::top::{TopOrder, TopSettings};
use crate::text::{count_noun, printable};

/// Timeout for the agent.
const AGENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The aggregator's maximum page size.
const PAGE_SIZE: usize = 1000;

/// A source of rows.
#[derive(Debug)]
pub(super) struct UsageSource<'a> {
    settings: &'a TopSettings,
    client: Option<Client>,
}

impl<'a> UsageSource<'a> {
    /// Creates a source. Finds the aggregator, but does not send a request to it.
    pub(super) async fn new(settings: &'a TopSettings) -> Result<Self, CliError> {
        let client =
            if settings.here { None } else { Some(Client::connect(&settings.server).await?) };
        Ok(Self { settings, client })
    }

    /// Requests the current rows, at most `limit`.
    pub(super) async fn ask(&self, limit: Option<usize>) -> Result<UsageRows, CliError> {
        match &self.client {
            Some(client) => {
                let node = self.settings.node.as_deref();
                let list = self.pages(client, node, limit).await?;
                Ok(fleet(list, node))
            }
            None => Ok(self.here(&usage(&self.settings.state_dir).await?, limit)),
        }
    }

    async fn pages(
        &self,
        client: &Client,
        node: Option<&str>,
        limit: Option<usize>,
    ) -> Result<UsageList, CliError> {
        let sort = match self.settings.sort_by {
            TopOrder::Memory => "memory",
            TopOrder::Node => "node",
        };
        let filters = [
            ("node", node),
            ("namespace", self.settings.namespace.as_deref()),
            ("pod", self.settings.pod.as_deref()),
            ("over", self.settings.over.then_some("true")),
            ("sort", Some(sort)),
        ];
        let filters: Vec<(&str, &str)> =
            filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let mut all: Option<UsageList> = None;
        loop {
            let had = all.as_ref().map_or(0, |list| list.items.len());
            let wanted = limit.map_or(PAGE_SIZE, |limit| limit.saturating_sub(had).min(PAGE_SIZE));
            let wanted = wanted.to_string();
            let token = all.as_mut().and_then(|list| list.continue_token.take());
            let mut parameters = filters.clone();
            parameters.push(("limit", &wanted));
            parameters.extend(token.as_deref().map(|token| ("continue", token)));
            let target = RequestPath::new("/api/v1/usage").with(parameters);
            let page: UsageList = client.get(&target).await.map_err(usage_error)?;
            // An empty page may continue, but a repeated token would loop forever.
            let is_end = page.continue_token.is_none() || page.continue_token == token;
            let list = match &mut all {
                None => all.insert(page),
                Some(list) => {
                    list.items.extend(page.items);
                    list.revision = page.revision;
                    list.continue_token = page.continue_token;
                    list
                }
            };
            if is_end || limit.is_some_and(|limit| list.items.len() >= limit) {
                return Ok(list.clone());
            }
        }
    }

    /// Returns the rows of this node's agent, filtered and sorted as an aggregator would.
    fn here(&self, usage: &Usage, limit: Option<usize>) -> UsageRows {
        let settings = self.settings;
        let is = |wanted: Option<&str>, has: &Option<String>| {
            wanted.is_none() || wanted == has.as_deref()
        };
        let mut items = rows(&hostname(), false, usage);
        items.retain(|row| {
            is(settings.namespace.as_deref(), &row.tenant.namespace)
                && is(settings.pod.as_deref(), &row.tenant.pod)
                && (!settings.over || row.tenant.is_over_share)
        });
        items.sort_by_cached_key(UsageRow::sort_key);
        if settings.sort_by == TopOrder::Memory {
            items.sort_by_key(|row| Reverse(row.tenant.memory));
        }
        items.truncate(limit.unwrap_or(usize::MAX));
        let mut notes: Vec<String> = usage.missing.iter().map(|text| printable(text)).collect();
        if items.is_empty() {
            notes.push("no usage on this node, or none that matches".to_owned());
        }
        UsageRows { list: UsageList { items, ..empty() }, notes }
    }
}

fn empty() -> UsageList {
    UsageList {
        api_version: API_VERSION.to_owned(),
        kind: "UsageList".to_owned(),
        revision: 0,
        continue_token: None,
        items: Vec::new(),
    }
}

fn fleet(list: UsageList, node: Option<&str>) -> UsageRows {
    let mut notes = Vec::new();
    let mut stale: Vec<&str> =
        list.items.iter().filter(|row| row.stale).map(|row| row.node.as_str()).collect();
    stale.sort_unstable();
    stale.dedup();
    if let Some(first) = stale.first() {
        notes.push(format!(
            "{} stale, for example {}; the last reports are shown",
            count_noun(stale.len(), "node is", "nodes are"),
            printable(first)
        ));
    }
    if list.items.is_empty() {
        let whose = node.map_or_else(String::new, |node| format!(" on {}", printable(node)));
        notes.push(format!(
            "no matching usage{whose}; agents report usage only with --usage-interval"
        ));
    }
    if list.continue_token.is_some() {
        notes.push(format!("showing only the first {} rows", list.items.len()));
    }
    UsageRows { list, notes }
}

/// Changes the error's advice: without an aggregator, the node's agent can be used.
fn usage_error(error: ClientError) -> CliError {
    if let ClientError::Request { url, source } = error {
        CliError::UsageRequest { url, source }
    } else {
        error.into()
    }
}

/// Requests usage from the agent with its socket in `state_dir`.
async fn usage(state_dir: &Path) -> Result<Usage, CliError> {
    let talk = |source| CliError::AgentGone { source };
    let mut agent = connect(state_dir).await?.ok_or(CliError::NoAgent)?;
    let request = async {
        agent.write_all(line(&Request::Usage {}).as_bytes()).await.map_err(talk)?;
        let mut lines = BufReader::new(agent).lines();
        let received = lines.next_line().await.map_err(talk)?;
        let received = received.ok_or_else(|| talk(io::ErrorKind::UnexpectedEof.into()))?;
        match serde_json::from_str(&received).map_err(|error| talk(io::Error::other(error)))? {
            agent_socket::Answer::Usage(usage) => Ok(usage),
            agent_socket::Answer::Refused { reason } => Err(CliError::AgentRefused(reason)),
            agent_socket::Answer::Accepted { .. } | agent_socket::Answer::Status(_) => {
                Err(talk(io::ErrorKind::InvalidData.into()))
            }
        }
    };
    let answer = timeout(AGENT_TIMEOUT, request).await;
    answer.unwrap_or(Err(CliError::AgentTimeout(AGENT_TIMEOUT)))
}

/// Returns the kernel's name of this machine.
fn hostname() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}
