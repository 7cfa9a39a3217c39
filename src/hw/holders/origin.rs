//! Which pod a process is of, by its control group.

use std::collections::BTreeMap;
use std::path::Path;

use procfs::process::Process;

use super::HoldersError;
use super::open::all_in_sight;
use crate::domain::holder::Pod;
use crate::domain::sharing::join::Origin;

/// Whose each of these processes is, as the `/proc` at `root` tells. One that is not in the answer has ended.
///
/// # Errors
///
/// It is not the machine's own process file system: the numbers that the driver names mean other processes there.
pub fn origins(
    root: &Path,
    pids: impl IntoIterator<Item = u32>,
) -> Result<BTreeMap<u32, Origin>, HoldersError> {
    all_in_sight(root)?;
    let all = pids.into_iter();
    Ok(all
        .filter_map(|pid| Some((pid, origin(root, pid)?)))
        .collect())
}

fn origin(root: &Path, pid: u32) -> Option<Origin> {
    let process = Process::new_with_root(root.join(pid.to_string())).ok()?;
    let groups = process.cgroups().ok()?;
    // With the first version there is a line for each controller, and not all of them name the pod.
    let mut pods = groups
        .into_iter()
        .filter_map(|group| Pod::of_control_group(&group.pathname));
    Some(match pods.next() {
        Some(Pod {
            uid: Some(uid),
            container,
            ..
        }) => Origin::Pod { uid, container },
        Some(_) | None => Origin::NoPod,
    })
}
