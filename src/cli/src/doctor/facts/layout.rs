//! Layout status of the node: as its agent reports it through its socket, or else as stored in its state directory.

use std::path::Path;

use octavo_engine::agent_socket::{Answer, MAX_LINE_BYTES, Request, line};
use octavo_engine::store;
use octavo_model::driver_traces::Observed;
use octavo_node::doctor::{LayoutDevice, LayoutProgress, claim_service};
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_toolkit::error::chain;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{SOURCE_TIMEOUT, read};
use crate::apply;
use crate::settings::doctor::DoctorSources;

pub(super) async fn layout(settings: &DoctorSources) -> Observed<Option<LayoutProgress>> {
    let state_dir = &settings.state_dir;
    let result = timeout(SOURCE_TIMEOUT, of_agent(state_dir)).await;
    let result = result.unwrap_or_else(|_| {
        Err(format!(
            "the agent did not report its status within {} s ({})",
            SOURCE_TIMEOUT.as_secs(),
            state_dir.display()
        ))
    });
    match result {
        Ok(None) => {}
        result => return result,
    }
    let in_pod = settings.in_pod();
    let state_dir = state_dir.to_owned();
    read(state_dir.display().to_string(), move || left(&state_dir, in_pod)).await
}

/// Requests the status from the agent; `None` if none listens.
async fn of_agent(state_dir: &Path) -> Observed<Option<LayoutProgress>> {
    let agent = apply::connect(state_dir).await.map_err(|error| chain(&error))?;
    let Some(agent) = agent else { return Ok(None) };
    let status = ask(agent).await;
    let status = status.map_err(|why| format!("the agent did not report its status: {why}"))?;
    Ok(Some(agent_progress(status)))
}

async fn ask(mut agent: UnixStream) -> Observed<NodeLayoutStatus> {
    let result = agent.write_all(line(&Request::Watch {}).as_bytes()).await;
    result.map_err(|error| error.to_string())?;
    let limit = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
    let mut text = String::new();
    let mut agent = BufReader::new(agent.take(limit));
    let read = agent.read_line(&mut text).await;
    read.map_err(|error| error.to_string())?;
    match serde_json::from_str(&text) {
        Ok(Answer::Status(status)) => Ok(*status),
        Ok(Answer::Refused { reason }) => Err(reason),
        Ok(Answer::Accepted { .. } | Answer::Usage(_)) => Err("unexpected response".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn agent_progress(status: NodeLayoutStatus) -> LayoutProgress {
    let devices = status.devices.into_iter().map(|device| LayoutDevice {
        name: device.name,
        state: device.state,
        message: device.message,
    });
    LayoutProgress {
        is_agent: true,
        name: status.layout,
        state: status.state,
        notice: status.notice,
        devices: devices.collect(),
        journal: Vec::new(),
        claims: claim_service(status.sharing.as_ref()),
    }
}

fn left(state_dir: &Path, in_pod: bool) -> Observed<Option<LayoutProgress>> {
    let failed = |error| format!("cannot inspect {}: {error}", state_dir.display());
    if !state_dir.try_exists().map_err(failed)? {
        if in_pod {
            return Err(format!("{} is not mounted in this pod", state_dir.display()));
        }
        return Ok(None);
    }
    let journal = store::interrupted(state_dir).notices();
    let mut attempts = store::history(state_dir).map_err(|error| chain(&error))?;
    let Some(last) = attempts.pop() else {
        let is_begun = !journal.is_empty();
        let begun = LayoutProgress { journal, ..LayoutProgress::default() };
        return Ok(is_begun.then_some(begun));
    };
    let devices = last.devices.into_iter().map(|device| LayoutDevice {
        name: device.pci,
        state: device.result,
        message: device.message,
    });
    Ok(Some(LayoutProgress {
        name: Some(last.layout),
        devices: devices.collect(),
        journal,
        ..LayoutProgress::default()
    }))
}
