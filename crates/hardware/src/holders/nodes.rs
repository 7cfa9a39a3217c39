//! The driver's device nodes: their device numbers, and the meaning of capabilities.
//!
//! Source: open-gpu-kernel-modules, `nv-caps.c`. Each possible GPU instance and compute instance has a minor number of
//! the character device `nvidia-caps`. It is fixed while the driver is loaded and listed in
//! `/proc/driver/nvidia-caps/mig-minors`, for 32 GPUs whether or not they exist. `gpuN` is the GPU of `/dev/nvidiaN`. A
//! process that accesses an instance through such a node keeps it open the whole time, because the driver duplicates
//! the descriptor in the process (`nv_cap_validate_and_dup_fd`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use octavo_toolkit::files::{self, ReadError};
use procfs::{Devices, FromRead};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

use super::HoldersError;
use crate::sysfs::parse_number;

/// Capability tables. Only the first one lists instances; older drivers lack the others.
const MIG_TABLE: &str = "driver/nvidia-caps/mig-minors";
const OTHER_TABLES: [&str; 2] =
    ["driver/nvidia-caps/nvlink-minors", "driver/nvidia-caps/sys-minors"];
/// Size limit in bytes; the longest table today has about 100 KB.
const MAX_TABLE_BYTES: u64 = 1 << 20;
/// Minor numbers from here on belong to nvidia-modeset and nvidiactl. Source: open-gpu-kernel-modules,
/// `nv-chardev-numbers.h`.
const FIRST_NON_GPU_MINOR: u32 = 254;

/// A device node of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    /// `/dev/nvidia<minor>`.
    Gpu(u32),
    /// `/dev/nvidia-caps/nvidia-cap<minor>`.
    Capability(u32),
}

/// The meaning of a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    /// A GPU instance, or one of its compute instances, of the GPU with this minor number.
    Instance { gpu: u32, gpu_instance: u32, compute_instance: Option<u32> },
    /// Another capability: configuration, monitoring, NVLink or profiling.
    Other,
    /// The tables contradict each other.
    Ambiguous,
}

/// The numbers of the driver's device nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The major number of GPUs; `None` if there are none, so that none can be open.
    pub(crate) gpus: Option<u32>,
    /// The major number of capabilities; `None` if there are none.
    pub(crate) capabilities: Option<u32>,
    /// Capabilities by minor number.
    pub(crate) table: BTreeMap<u32, Capability>,
}

impl Nodes {
    /// Reads the numbers of the machine whose procfs is at `root`. `None` if the kernel has no such devices. This is
    /// certain, because the kernel lists all of them in containers, too.
    pub(crate) fn read(root: &Path) -> Result<Option<Self>, HoldersError> {
        let path = root.join("devices");
        let devices =
            Devices::from_file(&path).map_err(|error| HoldersError::unreadable(&path, error))?;
        let major = |names: &[&str]| {
            let mut all = devices.char_devices.iter();
            all.find(|device| names.contains(&device.name.as_str())).map(|device| device.major)
        };
        // Since R470, one major number has a line for each range of its minor numbers.
        let gpus = major(&["nvidia-frontend", "nvidia", "nvidiactl"]);
        let capabilities = major(&["nvidia-caps"]);
        let table = match (gpus, capabilities) {
            (None, None) => return Ok(None),
            (Some(_), None) => BTreeMap::new(),
            (_, Some(_)) => table(root)?,
        };
        Ok(Some(Self { gpus, capabilities, table }))
    }

    /// Returns the capability with this minor number, if the driver lists it.
    pub(crate) fn capability(&self, minor: u32) -> Option<Capability> {
        self.table.get(&minor).copied()
    }

    /// Returns the device node behind `link`, an entry of a process's `fd` directory, whose link text is `target`.
    ///
    /// The path belongs to the process's own mounts, where the node of one GPU can have the name of another (`docker
    /// run --device /dev/nvidia3:/dev/nvidia0`), so only the device number counts. It is queried only below `/dev` or
    /// if the file name is that of a node: following a link to any other file might block on a network file system. The
    /// query uses the kernel's cached attributes and contacts no server.
    pub(crate) fn resolve_link(&self, link: &Path, target: &Path) -> io::Result<Option<Node>> {
        let named = self.by_name(target);
        if named.is_none() && !target.starts_with("/dev") {
            return Ok(None);
        }
        match statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE) {
            Ok(file) => {
                let device = FileType::from_raw_mode(file.stx_mode.into()).is_char_device();
                let node = || self.by_number(file.stx_rdev_major, file.stx_rdev_minor);
                Ok(device.then(node).flatten())
            }
            // The file was closed in the meantime; until then it was what its name says.
            Err(error) if is_gone(&error.into()) => Ok(named),
            Err(error) => Err(error.into()),
        }
    }

    fn by_number(&self, major: u32, minor: u32) -> Option<Node> {
        if self.capabilities == Some(major) {
            Some(Node::Capability(minor))
        } else {
            (self.gpus == Some(major) && minor < FIRST_NON_GPU_MINOR).then_some(Node::Gpu(minor))
        }
    }

    fn by_name(&self, target: &Path) -> Option<Node> {
        let name = target.file_name()?.to_str()?;
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        if let Some(minor) = name.strip_prefix("nvidia-cap").and_then(parse_number) {
            self.by_number(self.capabilities?, minor)
        } else {
            self.by_number(self.gpus?, name.strip_prefix("nvidia").and_then(parse_number)?)
        }
    }
}

/// Returns whether the object no longer exists: the process has ended or the file was closed.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    let no_such_process = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(no_such_process)
}

fn table(root: &Path) -> Result<BTreeMap<u32, Capability>, HoldersError> {
    let mut table = BTreeMap::new();
    let path = root.join(MIG_TABLE);
    let text = text(&path)?.map_err(|error| HoldersError::unreadable(&path, error))?;
    add_lines(&mut table, &text, parse_mig_capability);
    for path in OTHER_TABLES.map(|name| root.join(name)) {
        match self::text(&path)? {
            Ok(text) => add_lines(&mut table, &text, |_| Some(Capability::Other)),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(HoldersError::unreadable(&path, error)),
        }
    }
    Ok(table)
}

fn text(path: &Path) -> Result<io::Result<String>, HoldersError> {
    match files::text(path, MAX_TABLE_BYTES) {
        Err(ReadError::TooLong(limit)) => {
            Err(HoldersError::TableTooLong { path: path.to_owned(), limit })
        }
        read => Ok(read.map_err(io::Error::from)),
    }
}

/// Adds the lines that can be parsed. An open capability from any other line is unknown.
fn add_lines(
    table: &mut BTreeMap<u32, Capability>,
    text: &str,
    parse: fn(&str) -> Option<Capability>,
) {
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    for (name, minor) in lines {
        let Some(minor) = parse_number(minor) else {
            continue;
        };
        let Some(capability) = parse(name) else {
            continue;
        };
        table
            .entry(minor)
            .and_modify(|known| {
                if *known != capability {
                    *known = Capability::Ambiguous;
                }
            })
            .or_insert(capability);
    }
}

/// Parses `config`, `gpu0/gi1/access` or `gpu0/gi1/ci0/access`.
fn parse_mig_capability(name: &str) -> Option<Capability> {
    if matches!(name, "config" | "monitor") {
        return Some(Capability::Other);
    }
    let mut parts = name.strip_suffix("/access")?.split('/');
    let mut id =
        |prefix: &str| parts.next().map(|part| part.strip_prefix(prefix).and_then(parse_number));
    let instance = Capability::Instance {
        gpu: id("gpu")??,
        gpu_instance: id("gi")??,
        compute_instance: match id("ci") {
            Some(one) => Some(one?),
            None => None,
        },
    };
    parts.next().is_none().then_some(instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(gpu: u32, gpu_instance: u32, compute_instance: Option<u32>) -> Capability {
        Capability::Instance { gpu, gpu_instance, compute_instance }
    }

    #[test]
    fn capability_lines_are_parsed_strictly() {
        assert_eq!(parse_mig_capability("config"), Some(Capability::Other));
        assert_eq!(parse_mig_capability("monitor"), Some(Capability::Other));
        assert_eq!(parse_mig_capability("gpu0/gi1/access"), Some(instance(0, 1, None)));
        assert_eq!(parse_mig_capability("gpu31/gi14/ci7/access"), Some(instance(31, 14, Some(7))));
        for name in [
            "",
            "access",
            "/access",
            "gpu0/access",
            "gpu/gi1/access",
            "gpu+1/gi1/access",
            "gpu0/gi1/ci/access",
            "gpu0/gi1/ci0/vm0/access",
            "gpu0/gi1/ci0",
            "gpu99999999999/gi1/access",
            "something-new",
        ] {
            assert_eq!(parse_mig_capability(name), None, "{name}");
        }
    }

    #[test]
    fn contradicting_lines_are_ambiguous_and_duplicates_ignored() {
        let mut table = BTreeMap::new();
        let text = "gpu0/gi1/access 12\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi2/access 13\n\u{0}\u{fffd} \
                    what\ngpu0/gi3/access -1\ngpu0/gi4/access 99999999999\ngpu0/gi5/access\n";
        add_lines(&mut table, text, parse_mig_capability);
        let expected = [(12, instance(0, 1, None)), (13, Capability::Ambiguous)];
        assert_eq!(table, BTreeMap::from(expected));
    }

    #[test]
    fn node_name_is_recognized_in_any_directory() {
        let nodes = Nodes { gpus: Some(195), capabilities: Some(235), table: BTreeMap::new() };
        let named = |path: &str| nodes.by_name(Path::new(path));
        assert_eq!(named("/dev/nvidia0"), Some(Node::Gpu(0)));
        assert_eq!(named("/run/nvidia/driver/dev/nvidia12"), Some(Node::Gpu(12)));
        assert_eq!(named("/dev/nvidia3 (deleted)"), Some(Node::Gpu(3)));
        assert_eq!(named("/dev/nvidia-caps/nvidia-cap0"), Some(Node::Capability(0)));
        for other in [
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia255",
            "/dev/nvidia",
            "/dev/nvidia-caps/nvidia-cap",
            "/dev/nvidia-caps-imex-channels/channel0",
            "/dev/nvidia+1",
            "/",
            "socket:[1]",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
