//! The images that `hack/image.sh` builds from the tested programs, read from its archives.
//!
//! Building needs buildah, jq and binutils (`make setup` installs them), and root or user namespaces; running a program
//! of an image needs root or sudo.

mod judges;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::{fs, thread};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::machine::Machine;
use crate::time_limits::watch;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Each image, and its files on top of the base.
const IMAGES: [(&str, &[&str]); 2] = [
    (
        "agent",
        &["usr/local/bin/octavo", "usr/local/bin/octavo-agent", "usr/share/doc/octavo/LICENSE"],
    ),
    ("aggregator", &["usr/local/bin/octavo-aggregator", "usr/share/doc/octavo/LICENSE"]),
];

/// Allowed content of a base image: directories whose files are never executed, and files.
const BASE: [&str; 10] = [
    "etc/debian_version",
    "etc/group",
    "etc/nsswitch.conf",
    "etc/os-release",
    "etc/passwd",
    "etc/ssl/certs/ca-certificates.crt",
    "usr/lib/os-release",
    "usr/share/common-licenses/",
    "usr/share/doc/",
    "var/lib/dpkg/status.d/",
];

impl Machine {
    /// A machine with its driver in a subdirectory of a shared directory.
    pub(crate) fn at(directory: &Path, name: &str, scenario: &str) -> Self {
        let mut dir = tempfile::Builder::new();
        let dir = dir.prefix(name).rand_bytes(0).tempdir_in(directory);
        let machine = Self::described(dir.unwrap(), scenario);
        machine.install_driver();
        machine
    }
}

/// Archives of both images, under the names in the manifests.
pub(crate) struct Images {
    directory: TempDir,
}

impl Images {
    /// The images shared by tests that run at the same time.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Images>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let images = Arc::new(Self::build());
            *shared = Arc::downgrade(&images);
            images
        })
    }

    fn build() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (output, left) = script(&programs(), directory.path());
        assert!(output.status.success(), "{}", reported(&output));
        assert_eq!(left, [""; 0], "left behind");
        Self { directory }
    }

    /// The archive of `agent` or `aggregator`; its image is named `octavo/agent:VERSION`.
    pub(crate) fn archive(&self, image: &str) -> PathBuf {
        self.directory.path().join(format!("{image}.oci.tar"))
    }
}

/// An unpacked archive.
pub(crate) struct Image {
    directory: TempDir,
    pub(crate) digest: String,
    manifest: Value,
    config: Value,
}

impl Image {
    /// The image of an archive. If the archive contains an index, its first image.
    pub(crate) fn open(archive: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar");
        run(tar.arg("-xf").arg(archive).arg("-C").arg(directory.path()));
        let read = |path: PathBuf| -> Value {
            serde_json::from_slice(&fs::read(directory.path().join(path)).unwrap()).unwrap()
        };
        let index = read("index.json".into());
        let mut digest = text(&index["manifests"][0]["digest"]);
        let mut manifest = read(blob(&digest));
        if manifest["manifests"].is_array() {
            digest = text(&manifest["manifests"][0]["digest"]);
            manifest = read(blob(&digest));
        }
        let config = read(blob(&text(&manifest["config"]["digest"])));
        Self { directory, digest, manifest, config }
    }

    fn layers(&self) -> Vec<PathBuf> {
        let layers = self.manifest["layers"].as_array().unwrap();
        layers
            .iter()
            .map(|layer| self.directory.path().join(blob(&text(&layer["digest"]))))
            .collect()
    }

    /// The image index in an archive.
    pub(crate) fn index(archive: &Path) -> Value {
        let read = |path: &Path| -> Value {
            let mut tar = Command::new("tar");
            serde_json::from_str(&run(tar.arg("-xOf").arg(archive).arg(path))).unwrap()
        };
        let index = read(Path::new("index.json"));
        read(&blob(&text(&index["manifests"][0]["digest"])))
    }

    /// The merged layers, with space for a machine.
    pub(crate) fn root(&self) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for layer in self.layers() {
            let mut tar = Command::new("tar");
            run(tar.arg("-xzpf").arg(layer).arg("-C").arg(root.path()));
        }
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        root
    }
}

/// A line of `tar -tv`.
struct Entry {
    mode: String,
    owner: String,
    day: String,
    path: String,
}

fn entries(layer: &Path) -> Vec<Entry> {
    let mut tar = Command::new("tar");
    let listing = run(tar.args(["--numeric-owner", "--utc", "-tvzf"]).arg(layer));
    listing
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            Entry {
                mode: words[0].to_owned(),
                owner: words[1].to_owned(),
                day: words[3].to_owned(),
                path: words[5].trim_start_matches("./").to_owned(),
            }
        })
        .collect()
}

fn blob(digest: &str) -> PathBuf {
    Path::new("blobs").join(digest.replace(':', "/"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Runs `hack/image.sh`; returns its output, and the files left in its draft directory.
fn script(binaries: &Path, out: &Path) -> (Output, Vec<String>) {
    watch();
    let drafts = tempfile::tempdir().unwrap();
    let output = Command::new(here().join("hack/image.sh"))
        .arg("--binaries")
        .arg(binaries)
        .arg("--out")
        .arg(out)
        .env("TMPDIR", drafts.path())
        .output()
        .unwrap();
    let left = fs::read_dir(drafts.path()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left = left.collect();
    (output, left)
}

/// Directory of the programs.
pub(crate) fn programs() -> PathBuf {
    let agent = Path::new(env!("CARGO_BIN_EXE_octavo-agent"));
    agent.parent().unwrap().to_owned()
}

pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn reported(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Runs a program that must succeed and returns its output.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    watch();
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}; see `make setup`"));
    assert!(output.status.success(), "{command:?}: {}", reported(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn concurrent_image_builds_are_independent_and_reproducible() {
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(Images::build);
        (Images::shared(), one.join().unwrap())
    });
    for (image, _) in IMAGES {
        let [one, other] =
            [one.archive(image), other.archive(image)].map(|path| Image::open(&path));
        assert_eq!(one.digest, other.digest, "{image}");
    }
}

#[test]
fn image_runs_program_as_unprivileged_user_and_has_labels() {
    let images = Images::shared();
    for (name, title) in [
        ("agent", "Partitions, labels and reports the accelerators of its node"),
        ("aggregator", "Shows the accelerators of a fleet, as its agents report them"),
    ] {
        let image = Image::open(&images.archive(name));
        assert_eq!(image.config["created"], "1970-01-01T00:00:00Z");
        let labels: BTreeMap<String, String> = [
            ("description", title),
            ("licenses", "Apache-2.0"),
            ("title", &format!("octavo-{name}")),
            ("vendor", "Octavo"),
            ("version", VERSION),
        ]
        .into_iter()
        .map(|(key, value)| (format!("org.opencontainers.image.{key}"), value.to_owned()))
        .collect();
        let expected = json!({
            "User": "65532:65532",
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "Entrypoint": [format!("/usr/local/bin/octavo-{name}")],
            "Labels": labels,
        });
        assert_eq!(image.config["config"], expected);
    }
}

#[test]
fn image_contains_only_listed_files_and_our_executables() {
    let images = Images::shared();
    for (name, contents) in IMAGES {
        let image = Image::open(&images.archive(name));
        let layers = image.layers();
        let (base, ours) = layers.split_first().unwrap();
        let files = |layer: &PathBuf| {
            let mut all = entries(layer);
            all.retain(|entry| !entry.mode.starts_with('d'));
            all
        };
        for entry in layers.iter().flat_map(|layer| entries(layer)) {
            let Entry { mode, owner, day, path } = entry;
            assert_eq!((owner.as_str(), day.as_str()), ("0/0", "1970-01-01"), "{path}");
            assert!(!mode.contains(['s', 'S']), "{path} changes who executes it");
        }
        for Entry { mode, path, .. } in files(base) {
            let library = path.starts_with("lib") && path.contains(".so.");
            let known = BASE
                .iter()
                .any(|known| path == *known || known.ends_with('/') && path.starts_with(known));
            assert!(
                library || known && (mode.starts_with('l') || !mode.contains('x')),
                "{mode} {path}"
            );
        }
        let mut names: Vec<String> = ours.iter().flat_map(files).map(|entry| entry.path).collect();
        names.sort();
        assert_eq!(names, contents);
    }
}

#[test]
fn agent_and_cli_of_image_load_the_mounted_driver() {
    let images = Images::shared();
    let root = Image::open(&images.archive("agent")).root();
    let machine =
        Machine::at(root.path(), "machine", "machine: one\ngpus:\n- {board: A100_80GB}\n");
    // The simulator stores in files what a driver stores in the kernel.
    run(Command::new("chmod").args(["-R", "a+rwX"]).arg(machine.path()));
    let inside = |arguments: &[&str]| {
        let mut command = if rustix::process::geteuid().is_root() {
            Command::new("chroot")
        } else {
            let mut command = Command::new("sudo");
            command.args(["-n", "chroot"]);
            command
        };
        command.arg("--userspec=65532:65532").arg(root.path()).args(arguments);
        let driver = ["--nvml-library=/machine/libnvidia-ml.so.1", "--sys-root=/machine/sys"];
        run(command.args(driver).env_clear().env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/bin"))
    };
    let labels = inside(&["octavo-agent", "--oneshot", "--label-sink=stdout"]);
    assert!(labels.contains("nvidia.com/gpu.count=1"), "{labels}");
    let inventory = inside(&["octavo", "inspect"]);
    assert!(inventory.contains("nvidia-a100-80gb"), "{inventory}");
}

#[test]
fn wrong_programs_are_named_and_produce_no_image() {
    let binaries = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let (output, _) = script(binaries.path(), out.path());
    let missing = "error: octavo is missing in ";
    assert!(
        !output.status.success() && reported(&output).contains(missing),
        "{}",
        reported(&output)
    );
    for name in ["octavo", "octavo-agent", "octavo-aggregator"] {
        fs::copy("/bin/true", binaries.path().join(name)).unwrap();
    }
    let (output, left) = script(binaries.path(), out.path());
    let wrong = "error: agent: octavo reports version 'true ";
    assert!(!output.status.success() && reported(&output).contains(wrong), "{}", reported(&output));
    assert_eq!(left, [""; 0], "left behind");
}

#[test]
fn dockerfile_version_matches_package_version() {
    let dockerfile = fs::read_to_string(here().join("Dockerfile.agent")).unwrap();
    let line = format!("\nARG VERSION={VERSION}\n");
    assert!(dockerfile.contains(&line), "{line}");
}
