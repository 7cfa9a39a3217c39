//! Files of `/sys`: PCI functions, AMD and Neuron devices.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use octavo_hardware::{DriverHandle, Settings, nvml, spawn};
use octavo_model::inventory::{Inventory, ReadProblem};
use octavo_node::label_set::LabelSet;
use octavo_stream::status;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::fuzz::fuzzer::{Outcome, Target};
use crate::fuzz::seeds::{directory, files};
use crate::tree::write_tree;

/// Replaced files of a machine: lines `path = content`.
pub(super) fn sysfs() -> Target {
    let mut machine = Machine::new();
    let mut seeds: Vec<String> =
        machine.files.iter().map(|(path, content)| line(path, content)).collect();
    // Files that belong together.
    let together: Vec<String> = seeds.chunks(12).map(<[String]>::concat).collect();
    seeds.extend(together);
    Target::text(seeds, move |text| machine.check(text))
}

fn line(path: &Path, content: &str) -> String {
    format!("{} = {}\n", path.display(), content.replace('\n', "\\n"))
}

/// Two MI210, other functions, and a Trainium device, without an NVIDIA driver.
struct Machine {
    directory: TempDir,
    /// All files, by path.
    files: BTreeMap<PathBuf, String>,
    handle: DriverHandle,
    runtime: Runtime,
}

impl Machine {
    fn new() -> Self {
        let directory = directory();
        let text = |name: &str| {
            String::from_utf8(files(&[&format!("tests/fixtures/sysfs/{name}.tree")]).concat())
                .unwrap()
        };
        for name in ["mi210x2", "mi300x-vf", "makers"] {
            write_tree(&directory.path().join("sys"), &without_links(&text(name)));
        }
        write_tree(&directory.path().join("sys"), &text("mi210x2"));
        write_tree(directory.path(), &text("trn1.2xlarge"));
        let root = directory.path().canonicalize().unwrap();
        let settings = Settings {
            library: Some(root.join("no-driver/libnvidia-ml.so.1")),
            driver_roots: Vec::new(),
            neuron_logical_config: root.join("opt/aws/neuron/logical_nc_config"),
            sys_root: root.join("sys"),
            call_deadline: Duration::from_mins(2),
        };
        let handle = spawn(Box::new(nvml::Loader::new(&settings)), &settings).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut all = BTreeMap::new();
        read_files(&root, &root, &mut all);
        let machine = Self { directory, files: all, handle, runtime };
        let inventory = machine.observe();
        assert!(inventory.devices.len() >= 2 && inventory.neuron.is_some(), "{inventory:?}");
        machine
    }

    fn observe(&self) -> Inventory {
        self.runtime.block_on(async { Inventory::clone(&*self.handle.observe().await) })
    }

    fn check(&mut self, text: &str) -> Outcome {
        let entries = text.lines().filter_map(|line| line.split_once(" = "));
        let entries = entries.filter(|(path, _)| is_inside(Path::new(path))).take(40);
        let replaced: BTreeSet<&Path> =
            entries.filter_map(|(path, content)| self.replace(Path::new(path), content)).collect();
        if replaced.is_empty() {
            return Outcome::Rejected("no file".to_owned());
        }
        let inventory = self.observe();
        for path in replaced {
            let file = self.directory.path().join(path);
            match self.files.get(path) {
                Some(content) => fs::write(file, content).unwrap(),
                None => fs::remove_file(file).unwrap(),
            }
        }
        check_inventory(&inventory);
        Outcome::Accepted
    }

    /// Writes a file into an existing directory. `None` if that is not possible.
    fn replace<'a>(&self, path: &'a Path, content: &str) -> Option<&'a Path> {
        let file = self.directory.path().join(path);
        let parent = file.parent()?.canonicalize().ok()?;
        let root = self.directory.path().canonicalize().ok()?;
        // A link can lead to another directory of the machine, whose files would not be restored.
        (parent == root.join(path.parent()?)).then_some(())?;
        fs::write(file, content.replace("\\n", "\n")).ok()?;
        Some(path)
    }
}

/// Two trees have the same directories and other links.
fn without_links(tree: &str) -> String {
    let lines: Vec<&str> = tree.lines().filter(|line| !line.contains(" -> ")).collect();
    lines.join("\n")
}

fn is_inside(path: &Path) -> bool {
    let mut components = path.components();
    components.all(|component| matches!(component, Component::Normal(_)))
}

fn read_files(root: &Path, directory: &Path, all: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            read_files(root, &path, all);
        } else {
            let content = fs::read_to_string(&path).unwrap();
            all.insert(path.strip_prefix(root).unwrap().to_owned(), content);
        }
    }
}

/// Every file system of a machine can be written, read again, and reported to the aggregator.
fn check_inventory(inventory: &Inventory) {
    let problems = inventory.devices.iter().map(|device| &device.problems);
    let neuron = inventory.neuron.iter();
    let of_neuron = neuron.flat_map(|neuron| {
        neuron.devices.iter().map(|device| &device.problems).chain([&neuron.problems])
    });
    problems.chain(of_neuron).for_each(|problems| short(problems));
    let written = serde_json::to_string(inventory).unwrap();
    let again = octavo_files::inventory::parse(&written);
    assert_eq!(&again.unwrap_or_else(|error| panic!("{error:?}\n{written}")), inventory);
    let reported = status::decode(&status::encode(inventory, &LabelSet::default(), None));
    let reported = reported.unwrap().inventory;
    assert_eq!(&reported, inventory);
}

/// Error texts are short and contain no control characters.
fn short(problems: &[ReadProblem]) {
    assert!(problems.len() < 24, "{problems:?}");
    for problem in problems {
        let text = format!("{}: {}", problem.source, problem.error);
        assert!(text.len() < 400 && !text.contains(char::is_control), "{text:?}");
    }
}
