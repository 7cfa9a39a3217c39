//! Finds running programs by process name, which every user can read.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use octavo_toolkit::files;

use super::open_files::process_id;

/// Length of a process name in bytes, to which the kernel truncates it. Source: `proc_pid_comm(5)`, `TASK_COMM_LEN`.
const COMM_BYTES: usize = 15;
/// Size limit in bytes, above a name and its line end.
const MAX_COMM_FILE_BYTES: u64 = 64;
/// Process limit, above the kernel's default number of process IDs.
const MAX_PROCESSES: usize = 1 << 16;

/// Returns those of `names` that a process in the procfs at `root` has. A program that is not found may run in a
/// namespace that is not visible.
pub fn running_programs(root: &Path, names: &[&str]) -> BTreeSet<String> {
    let entries = fs::read_dir(root).into_iter().flatten().take(MAX_PROCESSES).flatten();
    let mut found = BTreeSet::new();
    for entry in entries {
        if process_id(&entry.file_name()).is_none() {
            continue;
        }
        let Ok(text) = files::read_prefix(&entry.path().join("comm"), MAX_COMM_FILE_BYTES) else {
            continue;
        };
        let text = String::from_utf8_lossy(&text);
        let its = |name: &&&str| name.get(..COMM_BYTES).unwrap_or(name) == text.trim_end();
        found.extend(names.iter().find(its).map(|name| (*name).to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_by_truncated_name() {
        let root = tempfile::tempdir().unwrap();
        for (pid, name) in
            [("7", "nvidia-mig-mana\n"), ("8", "gpu-feature\n"), ("x", "short\n"), ("9", "short\n")]
        {
            fs::create_dir(root.path().join(pid)).unwrap();
            fs::write(root.path().join(pid).join("comm"), name).unwrap();
        }
        fs::create_dir_all(root.path().join("10/comm")).unwrap();
        let names = ["nvidia-mig-manager", "gpu-feature-discovery", "short"];
        let found = running_programs(root.path(), &names);
        let expected = ["nvidia-mig-manager", "short"].map(str::to_owned);
        assert_eq!(found, expected.into());
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        let here = running_programs(Path::new("/proc"), &[own.trim_end()]);
        assert_eq!(here.len(), 1);
        assert!(running_programs(Path::new("/nowhere"), &names).is_empty());
    }
}
