//! Lists of nodes, from all pages.

use octavo_fleet::api::NodeList;

use crate::{Client, ClientError, RequestPath};

/// The aggregator's maximum page size.
const PAGE_SIZE: usize = 1000;

impl Client {
    /// Returns all nodes, ordered by name.
    pub async fn all_nodes(&self) -> Result<NodeList, ClientError> {
        self.nodes(&[("sort", "name")], None).await
    }

    /// Returns the nodes that the aggregator selects by these parameters, from all pages, or the first `limit` nodes.
    pub async fn nodes(
        &self,
        parameters: &[(&str, &str)],
        limit: Option<usize>,
    ) -> Result<NodeList, ClientError> {
        let mut all: Option<NodeList> = None;
        loop {
            let had = all.as_ref().map_or(0, |list| list.items.len());
            let wanted = limit.map_or(PAGE_SIZE, |limit| limit.saturating_sub(had).min(PAGE_SIZE));
            let wanted = wanted.to_string();
            let token = all.as_ref().and_then(|list| list.continue_token.as_deref());
            let page = parameters
                .iter()
                .copied()
                .chain([("limit", wanted.as_str())])
                .chain(token.map(|token| ("continue", token)));
            let page: NodeList = self.get(&RequestPath::new("/api/v1/nodes").with(page)).await?;
            // Stop at an empty page even if it claims to continue, which could otherwise loop forever.
            let last = page.continue_token.is_none() || page.items.is_empty();
            let all = match &mut all {
                None => all.insert(page),
                Some(all) => {
                    all.items.extend(page.items);
                    all.revision = page.revision;
                    all.total = page.total;
                    all.continue_token = page.continue_token;
                    all
                }
            };
            if last || limit.is_some_and(|limit| all.items.len() >= limit) {
                return Ok(all.clone());
            }
        }
    }
}
