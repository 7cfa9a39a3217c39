//! What drivers leave on a machine beside what they say: kernel modules, entries in sysfs, device files.
//!
//! Nothing is opened but small texts of sysfs, and no device file at all: whoever opens one may wake a device, or stand in somebody's way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::domain::doctor::{Files, Told, Traces};
use crate::hw::sysfs::Sysfs;

/// Modules that drive accelerators, or keep others from it. Source: the drivers themselves.
const MODULES: [&str; 6] = [
    "nvidia",
    "nouveau",
    "amdgpu",
    "neuron",
    "vfio_pci",
    "habanalabs",
];
/// Where the Neuron driver has its devices.
const NEURON: &str = "class/neuron_device";
const KFD: &str = "class/kfd/kfd/topology/nodes";

/// Folders of device files beside the first one.
const FOLDERS: [&str; 2] = ["dri", "nvidia-caps"];
/// Names that accelerators' device files begin with.
const NAMES: [&str; 5] = ["nvidia", "neuron", "kfd", "renderD", "card"];
/// More than any machine has; a folder with more is not read to its end.
const MOST_FILES: usize = 1 << 14;

/// What drivers leave in the sysfs at `root`.
pub fn read(root: &Path) -> Traces {
    let sys = Sysfs::new(root.to_owned());
    let modules = MODULES.into_iter().filter_map(|module| {
        let folder = format!("module/{module}");
        let version = || sys.text(&format!("{folder}/version"));
        root.join(&folder)
            .is_dir()
            .then(|| (module.to_owned(), version()))
    });
    let modules: BTreeMap<String, Option<String>> = modules.collect();
    let neuron = sys.names(NEURON);
    let neuron = neuron.iter().filter_map(|name| number(name, "neuron"));
    Traces {
        has_bus: fs::read_dir(root.join("bus/pci/devices")).is_ok(),
        modules,
        neuron: neuron.collect(),
        kfd_nodes: sys.names(KFD).len(),
    }
}

/// The accelerators' device files in the folder `dev`.
pub fn files(dev: &Path) -> Told<Files> {
    let mut names = BTreeSet::new();
    collect(dev, "", &mut names)
        .map_err(|error| format!("cannot read {}: {error}", dev.display()))?;
    for folder in FOLDERS {
        let path = dev.join(folder);
        match collect(&path, folder, &mut names) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        }
    }
    Ok(Files(names))
}

fn collect(path: &Path, prefix: &str, names: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(path)?.take(MOST_FILES) {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !NAMES.iter().any(|known| name.starts_with(known)) {
            continue;
        }
        // Through links: containers are given some by links.
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

/// The number behind a prefix, written as the kernel does.
fn number(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn modules_are_those_that_are_loaded_and_neuron_devices_are_told_by_their_numbers() {
        let sys = tempfile::tempdir().unwrap();
        let plant = |path: &str, text: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        plant("module/neuron/version", "2.26.5.0\n");
        plant("module/amdgpu/srcversion", "x");
        plant("module/e1000/version", "1");
        for name in [
            "neuron0", "neuron10", "neuron2", "neuron", "neuronx", "other1",
        ] {
            plant(&format!("class/neuron_device/{name}/core_count"), "2");
        }
        let traces = read(sys.path());
        let modules = [
            ("amdgpu".to_owned(), None),
            ("neuron".to_owned(), Some("2.26.5.0".to_owned())),
        ];
        assert_eq!(traces.modules, modules.into());
        assert_eq!(traces.neuron, [0, 2, 10].into());
        assert!(!traces.has_bus);
        fs::create_dir_all(sys.path().join("bus/pci/devices")).unwrap();
        assert!(read(sys.path()).has_bus);
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
        assert_eq!(files(dev.path()), Ok(Files(names.into())));
        let error = files(Path::new("/nowhere")).unwrap_err();
        assert!(error.starts_with("cannot read /nowhere: "), "{error}");
    }
}
