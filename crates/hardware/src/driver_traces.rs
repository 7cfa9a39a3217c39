//! Traces of drivers outside their own interfaces: kernel modules, sysfs entries, device files.
//!
//! Only small text files of sysfs are opened. Device files are never opened: that could wake a device or block a
//! change.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::{fs, io};

use octavo_model::driver_traces::{
    AvailableModules, CgroupVersion, ControlGroups, DeviceFiles, DriverTraces, Observed,
    PodCgroupManager,
};
use octavo_toolkit::files;

use crate::sysfs::{Sysfs, parse_number};

/// Kernel modules that drive accelerators or reserve them for other uses. Source: the drivers themselves.
const MODULES: [&str; 6] = ["nvidia", "nouveau", "amdgpu", "neuron", "vfio_pci", "habanalabs"];
/// Device class of the Neuron driver.
const NEURON_CLASS_DIR: &str = "class/neuron_device";
const KFD_NODES_DIR: &str = "class/kfd/kfd/topology/nodes";

/// Subdirectories with device files.
const DEVICE_SUBDIRS: [&str; 2] = ["dri", "nvidia-caps"];
/// Name prefixes of accelerators' device files.
const DEVICE_FILE_PREFIXES: [&str; 5] = ["nvidia", "neuron", "kfd", "renderD", "card"];
/// Maximum number of entries read from a directory.
const MAX_DEVICE_FILES: usize = 1 << 14;

/// Control group directory, below the root of sysfs. Source: `cgroups(7)`; systemd, "The New Control Group Interfaces".
const CGROUP_DIR: &str = "fs/cgroup";
/// A file that exists only in cgroup v2.
const CGROUP_V2_FILE: &str = "cgroup.controllers";
/// The device controller, which has its own directory in cgroup v1.
const CGROUP_V1_DEVICES: &str = "devices";

/// Size limit in bytes; the longest `modules.dep` is below 1 MB.
const MAX_MODULES_DEP_BYTES: u64 = 16 << 20;
/// Size limit in bytes; a kernel release is one line.
const MAX_RELEASE_BYTES: u64 = 4096;

/// Reads the traces of drivers in the sysfs at `root`.
pub fn read(root: &Path) -> DriverTraces {
    let sys = Sysfs::new(root.to_owned());
    let mut modules = BTreeMap::new();
    let mut unknown_modules = BTreeMap::new();
    for module in MODULES {
        let dir = format!("module/{module}");
        match fs::metadata(root.join(&dir)) {
            Ok(found) if found.is_dir() => {
                let version = sys.text(&format!("{dir}/version"));
                modules.insert(module.to_owned(), version);
            }
            Ok(_) => {}
            Err(error) if files::is_missing(&error) => {}
            // A module directory that cannot be inspected is not absent.
            Err(error) => {
                unknown_modules.insert(module.to_owned(), error.to_string());
            }
        }
    }
    let neuron = sys.names(NEURON_CLASS_DIR).unwrap_or_default();
    let neuron = neuron.iter().filter_map(|name| parse_number(name.strip_prefix("neuron")?));
    let (kfd_nodes, kfd_error) = match sys.names(KFD_NODES_DIR) {
        Ok(names) => (names.len(), None),
        Err(error) => (0, Some(error.to_string())),
    };
    DriverTraces {
        has_bus: fs::read_dir(root.join("bus/pci/devices")).is_ok(),
        modules,
        unknown_modules,
        neuron: neuron.collect(),
        kfd_nodes,
        kfd_error,
        installed: None,
    }
}

/// Returns the modules that are installed for the running kernel. `modules` is the directory with one subdirectory per
/// kernel, and `proc` is where procfs is mounted. `None` if the kernel's release or its list is unavailable, as in most
/// containers.
pub fn installed_modules(modules: &Path, proc: &Path) -> Option<AvailableModules> {
    let release = files::text(&proc.join("sys/kernel/osrelease"), MAX_RELEASE_BYTES).ok()?;
    let release = release.trim();
    // The release must be a single path component.
    if release.is_empty() || release.contains('/') || release.starts_with('.') {
        return None;
    }
    let place = modules.join(release).join("modules.dep");
    let list = files::text(&place, MAX_MODULES_DEP_BYTES).ok()?;
    let found = list.lines().filter_map(|line| {
        let (path, _) = line.split_once(':')?;
        let (name, _) = path.rsplit('/').next()?.split_once(".ko")?;
        // File names may have hyphens where module names have underscores. Source: `modprobe(8)`.
        let name = name.replace('-', "_");
        MODULES.contains(&name.as_str()).then_some(name)
    });
    Some(AvailableModules { modules: found.collect(), place: place.display().to_string() })
}

/// Returns how pods' control groups are managed, from the sysfs at `root`, and the device files in `dev` that systemd
/// would not find.
pub fn control_groups(root: &Path, dev: Option<&Path>) -> Observed<ControlGroups> {
    let dir = root.join(CGROUP_DIR);
    let is_dir = |path: &str| dir.join(path).is_dir();
    let (version, tree) = if dir.join(CGROUP_V2_FILE).exists() {
        (CgroupVersion::Two, "")
    } else if is_dir(CGROUP_V1_DEVICES) {
        (CgroupVersion::One, CGROUP_V1_DEVICES)
    } else {
        return Err(format!("no cgroups found in {}", dir.display()));
    };
    let pods = if dir.join(tree).join("kubepods.slice").is_dir() {
        Some(PodCgroupManager::Systemd)
    } else if dir.join(tree).join("kubepods").is_dir() {
        Some(PodCgroupManager::Runtime)
    } else {
        None
    };
    let dev = dev.ok_or_else(|| "/dev belongs to this pod, not to the host".to_owned());
    Ok(ControlGroups { version, pods, unlinked: dev.and_then(unlinked_device_files) })
}

/// Returns NVIDIA's device files without a link in `/dev/char`. The kernel creates these links for other vendors.
fn unlinked_device_files(dev: &Path) -> Observed<Vec<String>> {
    let DeviceFiles(names) = device_files(dev)?;
    let is_unlinked = |name: &String| {
        let number = fs::metadata(dev.join(name)).ok()?.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Some(!dev.join(format!("char/{major}:{minor}")).exists())
    };
    let nvidias = names.into_iter().filter(|name| name.starts_with("nvidia"));
    Ok(nvidias.filter(|name| is_unlinked(name) == Some(true)).collect())
}

/// Returns the accelerators' device files in the directory `dev`.
pub fn device_files(dev: &Path) -> Observed<DeviceFiles> {
    let mut names = BTreeSet::new();
    collect(dev, "", &mut names)
        .map_err(|error| format!("cannot read {}: {error}", dev.display()))?;
    for subdir in DEVICE_SUBDIRS {
        let path = dev.join(subdir);
        match collect(&path, subdir, &mut names) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        }
    }
    Ok(DeviceFiles(names))
}

fn collect(path: &Path, prefix: &str, names: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(path)?.take(MAX_DEVICE_FILES) {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !DEVICE_FILE_PREFIXES.iter().any(|known| name.starts_with(known)) {
            continue;
        }
        // Follow links: containers may have device files as links.
        let is_device =
            fs::metadata(entry.path()).is_ok_and(|file| file.file_type().is_char_device());
        if is_device && prefix.is_empty() {
            names.insert(name);
        } else if is_device {
            names.insert(format!("{prefix}/{name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn loaded_modules_and_neuron_devices_are_listed() {
        let sys = tempfile::tempdir().unwrap();
        let plant = |path: &str, text: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        plant("module/neuron/version", "2.26.5.0\n");
        plant("module/amdgpu/srcversion", "x");
        plant("module/e1000/version", "1");
        for name in ["neuron0", "neuron10", "neuron2", "neuron", "neuronx", "other1"] {
            plant(&format!("class/neuron_device/{name}/core_count"), "2");
        }
        let traces = read(sys.path());
        let modules =
            [("amdgpu".to_owned(), None), ("neuron".to_owned(), Some("2.26.5.0".to_owned()))];
        assert_eq!(traces.modules, modules.into());
        assert_eq!(traces.neuron, [0, 2, 10].into());
        assert!(!traces.has_bus);
        fs::create_dir_all(sys.path().join("bus/pci/devices")).unwrap();
        assert!(read(sys.path()).has_bus);
    }

    #[test]
    fn inaccessible_module_is_unknown() {
        let sys = tempfile::tempdir().unwrap();
        fs::create_dir_all(sys.path().join("module/neuron")).unwrap();
        // Root can inspect everything, but no user can follow a cyclic link.
        symlink("nvidia", sys.path().join("module/nvidia")).unwrap();
        let traces = read(sys.path());
        let loaded: Vec<&String> = traces.modules.keys().collect();
        assert_eq!(loaded, ["neuron"]);
        let unknown_modules: Vec<&String> = traces.unknown_modules.keys().collect();
        assert_eq!(unknown_modules, ["nvidia"]);
    }

    #[test]
    fn unreadable_topology_is_not_empty() {
        let sys = tempfile::tempdir().unwrap();
        let traces = read(sys.path());
        assert_eq!((traces.kfd_nodes, traces.kfd_error), (0, None));
        fs::create_dir_all(sys.path().join("class/kfd/kfd/topology")).unwrap();
        symlink("nodes", sys.path().join(KFD_NODES_DIR)).unwrap();
        let traces = read(sys.path());
        assert_eq!(traces.kfd_nodes, 0);
        assert!(traces.kfd_error.is_some());
    }

    #[test]
    fn installed_modules_are_those_of_the_running_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        for path in ["proc/sys/kernel", "modules/6.1.0", "modules/6.2.0"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        let read = || installed_modules(&at("modules"), &at("proc"));
        assert_eq!(read(), None, "the release of the kernel is unknown");
        fs::write(at("proc/sys/kernel/osrelease"), "6.1.0\n").unwrap();
        assert_eq!(read(), None, "the release has no list of modules");
        let list = "updates/dkms/neuron.ko.zst:\nkernel/drivers/vfio/vfio-pci.ko: a.ko\nkernel/fs/ext4.ko:\nodd\n";
        fs::write(at("modules/6.1.0/modules.dep"), list).unwrap();
        fs::write(at("modules/6.2.0/modules.dep"), "extra/nvidia.ko:\n").unwrap();
        let found = read().unwrap();
        assert_eq!(found.modules, ["neuron", "vfio_pci"].map(str::to_owned).into());
        assert!(found.place.ends_with("modules/6.1.0/modules.dep"));
        fs::write(at("proc/sys/kernel/osrelease"), "../../etc").unwrap();
        assert_eq!(read(), None, "the release is not the name of a directory");
    }

    #[test]
    fn cgroup_driver_and_unlinked_device_files_are_detected() {
        let machine = tempfile::tempdir().unwrap();
        let at = |path: &str| machine.path().join(path);
        let make = |path: &str| fs::create_dir_all(at(path)).unwrap();
        make("dev/char");
        let dev = at("dev");
        let read = || control_groups(machine.path(), Some(&dev));
        assert!(read().unwrap_err().contains("no cgroups"));
        make("fs/cgroup/devices/kubepods");
        let of = |version, pods| ControlGroups { version, pods, unlinked: Ok(Vec::new()) };
        assert_eq!(read(), Ok(of(CgroupVersion::One, Some(PodCgroupManager::Runtime))));
        fs::write(at("fs/cgroup/cgroup.controllers"), "").unwrap();
        assert_eq!(read(), Ok(of(CgroupVersion::Two, None)));
        make("fs/cgroup/kubepods.slice");
        assert_eq!(read(), Ok(of(CgroupVersion::Two, Some(PodCgroupManager::Systemd))));
        // A link to `/dev/null`, with device number 1:3, stands for an NVIDIA device, which only root could create.
        symlink("/dev/null", at("dev/nvidia0")).unwrap();
        symlink("/dev/null", at("dev/kfd")).unwrap();
        assert_eq!(read().unwrap().unlinked, Ok(vec!["nvidia0".to_owned()]));
        symlink("../nvidia0", at("dev/char/1:3")).unwrap();
        assert_eq!(read().unwrap().unlinked, Ok(Vec::new()));
        assert!(control_groups(machine.path(), None).unwrap().unlinked.is_err());
    }

    #[test]
    fn only_device_files_of_accelerators_count() {
        let dev = tempfile::tempdir().unwrap();
        let at = |name: &str| dev.path().join(name);
        fs::create_dir(at("dri")).unwrap();
        for name in ["nvidia0", "kfd", "null", "dri/renderD128", "dri/controlD64"] {
            symlink("/dev/null", at(name)).unwrap();
        }
        fs::write(at("neuron0"), "").unwrap();
        symlink("/nowhere", at("neuron1")).unwrap();
        let names = ["dri/renderD128", "kfd", "nvidia0"].map(str::to_owned);
        assert_eq!(device_files(dev.path()), Ok(DeviceFiles(names.into())));
        let error = device_files(Path::new("/nowhere")).unwrap_err();
        assert!(error.starts_with("cannot read /nowhere: "), "{error}");
    }
}
