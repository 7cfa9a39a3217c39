//! Units that agents report, decoded again only if a report changes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_fleet::availability::{
    AgentNode, AgentReport, AgentUnits, PotentialCache, has_same_allocations,
};
use octavo_model::id::NodeName;
use octavo_model::inventory::Inventory;
use octavo_stream::protocol::{Content, PartKey, Parts};
use octavo_stream::status;

use crate::clock::Moment;
use crate::fleet::{Fleet, Freshness, Node};

/// Agents of the last counted fleet.
#[derive(Debug, Default)]
pub(super) struct SeenAgents {
    fleet: Fleet,
    agents: BTreeMap<NodeName, SeenAgent>,
    known: PotentialCache,
}

/// What the last report of an agent means for counts.
#[derive(Debug)]
struct SeenAgent {
    units: Arc<AgentUnits>,
    freshness: Freshness,
    is_changing: bool,
}

/// Parts that do not affect units, and the usage, which is compared separately.
const OTHER_PARTS: [&str; 4] =
    [PartKey::LABELS, PartKey::LAYOUT, PartKey::USAGE, PartKey::PAST_USAGE];

impl SeenAgents {
    /// Decodes what agents have reported since the last counted fleet.
    pub(super) fn update(&mut self, fleet: Fleet) {
        let difference = fleet.since(&self.fleet);
        for node in difference.removed {
            self.agents.remove(&node.name);
        }
        for node in difference.changed.into_iter().filter(|node| node.is_local()) {
            let before = self.fleet.nodes.get(&node.name).zip(self.agents.get(&node.name));
            let known = before.filter(|(before, _)| reports_same_units(before, node));
            let units = match known {
                Some((_, agent)) => Some(Arc::clone(&agent.units)),
                None => units(node, &mut self.known),
            };
            // The store decoded the parts before it accepted them.
            if let Some(units) = units {
                let freshness = node.freshness.clone();
                let is_changing = is_applying_layout(node);
                self.agents.insert(node.name.clone(), SeenAgent { units, freshness, is_changing });
            }
        }
        self.fleet = fleet;
    }

    /// The agents at `now`, ordered by name.
    pub(super) fn at(&self, now: Moment) -> Vec<AgentNode<'_>> {
        let agents = self.agents.iter().map(|(name, agent)| AgentNode {
            name: name.as_str(),
            seen: &agent.units,
            is_stale: agent.freshness.is_stale(now),
            is_changing: agent.is_changing,
        });
        agents.collect()
    }
}

/// Units that the agent of this node reports. Decodes no more of the status than they need.
fn units(node: &Node, known: &mut PotentialCache) -> Option<Arc<AgentUnits>> {
    let devices = status::decode_devices(&node.parts).ok()?;
    let sharing = node.parts.get(PartKey::SHARING).map(status::decode_sharing);
    let (usage, sharing) = (node.usage_by_pod(), sharing.transpose().ok()?);
    let reported = AgentReport { usage: usage.as_ref(), sharing: sharing.as_ref() };
    let inventory = Inventory { devices, ..Inventory::default() };
    Some(Arc::new(AgentUnits::new(&node.devices, &inventory, reported, known)))
}

/// Returns whether both versions of a node report the same units. The usage changes often, but its allocations do not.
fn reports_same_units(before: &Node, node: &Node) -> bool {
    before.parts == node.parts
        || relevant_parts(&before.parts).eq(relevant_parts(&node.parts))
            && (before.parts.get(PartKey::USAGE) == node.parts.get(PartKey::USAGE)
                || has_same_allocations(
                    before.usage_by_pod().as_ref(),
                    node.usage_by_pod().as_ref(),
                ))
}

/// Parts that affect units, except the usage.
fn relevant_parts(parts: &Parts) -> impl Iterator<Item = (&PartKey, &Content)> {
    parts.iter().filter(|(key, _)| !OTHER_PARTS.contains(&key.as_str()))
}

/// Returns whether the agent is applying a layout now.
fn is_applying_layout(node: &Node) -> bool {
    node.summary.layout.as_ref().is_some_and(|layout| layout.is_changing)
}
