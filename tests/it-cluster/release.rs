//! The files that `hack/release.sh` makes of the tested programs, used as users use them.
//!
//! Building them needs what `hack/image.sh` needs; running a program in a clean root needs root or sudo.

mod documents;
#[path = "../../examples/man/pages.rs"]
mod man_pages;
mod refused;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use tempfile::TempDir;

use crate::image::{Image, here, programs, reported, run};
use crate::time_limits::watch;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const URL: &str = "https://downloads.example.com/octavo";
/// The programs of the tests need the glibc of this machine.
const GLIBC: &str = "2.36";

/// The stripped programs and the manual pages, in the directories that `--binaries` expects.
struct Binaries(TempDir);

impl Binaries {
    fn new() -> Self {
        watch();
        let directory = tempfile::tempdir().unwrap();
        let native = directory.path().join(architecture());
        fs::create_dir(&native).unwrap();
        for name in ["octavo", "octavo-agent", "octavo-aggregator"] {
            run(Command::new("strip").arg("-o").arg(native.join(name)).arg(programs().join(name)));
        }
        man_pages::write(&directory.path().join("man")).unwrap();
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Debian's name of this machine's architecture.
fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// Runs `hack/release.sh` of the repository at `top`.
fn script(top: &Path, binaries: &Path, out: &Path, arguments: &[&str]) -> Output {
    watch();
    Command::new(top.join("hack/release.sh"))
        .args(["--glibc", GLIBC, "--binaries"])
        .arg(binaries)
        .arg("--out")
        .arg(out)
        .args(arguments)
        .output()
        .unwrap()
}

/// The files of a release.
struct Release(TempDir);

impl Release {
    /// A release that tests share which run at the same time. It is built twice, and both builds must be identical.
    fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Release>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let release = Arc::new(Self::build_twice());
            *shared = Arc::downgrade(&release);
            release
        })
    }

    fn build_twice() -> Self {
        let binaries = Binaries::new();
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(|| Self::build(&binaries));
            (Self::build(&binaries), other.join().unwrap())
        });
        assert_eq!(one.digests(), other.digests(), "two builds of the same programs differ");
        one
    }

    fn build(binaries: &Binaries) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let arguments = ["--draft", "--base-url", URL, VERSION];
        let output = script(here(), binaries.path(), &directory.path().join("dist"), &arguments);
        assert!(output.status.success(), "{}", reported(&output));
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("dist").join(name)
    }

    /// An archive of a program for this machine.
    fn archive(&self, program: &str) -> PathBuf {
        self.path(&format!("{program}-{VERSION}-linux-{}.tar.gz", architecture()))
    }

    /// SHA-256 of each file.
    fn digests(&self) -> BTreeMap<String, String> {
        let names = fs::read_dir(self.path("")).unwrap();
        let names = names.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.map(|name| (name.clone(), sha256(&self.path(&name)))).collect()
    }
}

fn sha256(file: &Path) -> String {
    let line = run(Command::new("sha256sum").arg("--binary").arg(file));
    line.split(' ').next().unwrap().to_owned()
}

/// A root with glibc and without Octavo: the base of the images.
fn clean_root() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let base = run(&mut Command::new(here().join("hack/image-base.sh")));
    run(Command::new("tar").arg("-xf").arg(base.trim_end()).arg("-C").arg(root.path()));
    root
}

/// Runs a program in a root.
fn inside(root: &Path, arguments: &[&str]) -> String {
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new("chroot")
    } else {
        let mut command = Command::new("sudo");
        command.args(["-n", "chroot"]);
        command
    };
    let command = command.arg(root).args(arguments).env_clear();
    run(command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"))
}

fn unpack(archive: &Path, directory: &Path) {
    run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(directory));
}

/// The files and links below a directory, sorted.
fn files(directory: &Path) -> Vec<String> {
    let mut find = Command::new("find");
    let listing = run(find.arg(directory).args(["!", "-type", "d", "-printf", "%P\n"]));
    let mut files: Vec<String> = listing.lines().map(ToOwned::to_owned).collect();
    files.sort();
    files
}

#[test]
fn release_is_reproducible_and_has_every_file_with_its_checksum() {
    let release = Release::shared();
    let architecture = architecture();
    let mut artifacts =
        vec![format!("octavo_{VERSION}_{architecture}.deb"), format!("octavo-{VERSION}.tgz")];
    for program in ["octavo", "octavo-agent", "octavo-aggregator", "kubectl-octavo"] {
        artifacts.push(format!("{program}-{VERSION}-linux-{architecture}.tar.gz"));
    }
    let mut expected: Vec<String> =
        artifacts.iter().map(|name| format!("{name}.cdx.json")).collect();
    expected.extend(artifacts);
    for image in ["octavo-agent", "octavo-aggregator"] {
        expected.push(format!("{image}-{VERSION}.oci.tar"));
        expected.push(format!("{image}-{VERSION}-image-{architecture}.cdx.json"));
    }
    expected.extend(["RELEASE_NOTES.md", "SHA256SUMS", "octavo.yaml"].map(ToOwned::to_owned));
    expected.sort();
    let digests = release.digests();
    assert_eq!(digests.keys().cloned().collect::<Vec<_>>(), expected);
    let sums = fs::read_to_string(release.path("SHA256SUMS")).unwrap();
    assert_eq!(sums.lines().count(), expected.len() - 1);
    let mut check = Command::new("sha256sum");
    run(check.args(["--check", "--strict", "SHA256SUMS"]).current_dir(release.path("")));
}

#[test]
fn archives_contain_program_license_and_manual_and_start_in_a_clean_root() {
    let release = Release::shared();
    let root = clean_root();
    let mut page = Command::new("tar");
    for (program, manual) in [
        ("octavo", "man/octavo-nodes.1"),
        ("octavo-agent", "man/octavo-agent.8"),
        ("octavo-aggregator", "man/octavo-aggregator.8"),
    ] {
        unpack(&release.archive(program), root.path());
        let name = format!("{program}-{VERSION}-linux-{}", architecture());
        let contents = files(&root.path().join(&name));
        for file in [program, "LICENSE", manual] {
            assert!(contents.contains(&file.to_owned()), "{program} has no {file}: {contents:?}");
        }
        let started = inside(root.path(), &[&format!("/{name}/{program}"), "--version"]);
        assert_eq!(started, format!("{program} {VERSION}\n"));
        let help = inside(root.path(), &[&format!("/{name}/{program}"), "--help"]);
        assert!(help.contains(&format!("Usage: {program}")), "{help}");
    }
    let listing = run(page.args(["--numeric-owner", "-tvzf"]).arg(release.archive("octavo")));
    for line in listing.lines() {
        let kind = &line[..10];
        let is_program = line.ends_with("/octavo");
        let expected = match kind.chars().next() {
            Some('d') => "drwxr-xr-x",
            _ if is_program => "-rwxr-xr-x",
            _ => "-rw-r--r--",
        };
        assert!(kind == expected && line.contains(" 0/0 "), "{line}");
    }
    let completions = files(root.path());
    for shell in ["_octavo", "octavo.bash", "octavo.fish"] {
        assert!(completions.iter().any(|file| file.ends_with(&format!("completions/{shell}"))));
    }
}

#[test]
fn debian_package_depends_on_its_libraries_and_starts_in_a_clean_root() {
    let release = Release::shared();
    let package = release.path(&format!("octavo_{VERSION}_{}.deb", architecture()));
    let field = |name: &str| {
        run(Command::new("dpkg-deb").arg("-f").arg(&package).arg(name)).trim().to_owned()
    };
    assert_eq!(field("Package"), "octavo");
    assert_eq!(field("Version"), VERSION);
    assert_eq!(field("Architecture"), architecture());
    assert!(field("Depends").starts_with("libc6 (>= 2."), "{}", field("Depends"));
    let root = clean_root();
    run(Command::new("dpkg").arg("-x").arg(&package).arg(root.path()));
    let version = inside(root.path(), &["octavo", "version", "--client"]);
    assert!(version.contains(VERSION), "{version}");
    let help = inside(root.path(), &["kubectl-octavo", "nodes", "--help"]);
    assert!(help.contains("Usage: kubectl octavo nodes"), "{help}");
    let contents = files(root.path());
    for file in [
        "usr/bin/kubectl-octavo",
        "usr/share/bash-completion/completions/octavo",
        "usr/share/doc/octavo/copyright",
        "usr/share/man/man1/octavo.1.gz",
    ] {
        assert!(contents.contains(&file.to_owned()), "{file} is missing");
    }
    // The list of digests in the package covers every file.
    let control = tempfile::tempdir().unwrap();
    run(Command::new("dpkg-deb").arg("-e").arg(&package).arg(control.path()));
    let mut check = Command::new("md5sum");
    let checked = run(check.arg("--check").arg(control.path().join("md5sums")).current_dir(&root));
    assert!(checked.lines().count() > 20, "{checked}");
}

#[test]
fn image_index_names_the_platform_and_its_programs_start() {
    let release = Release::shared();
    for image in ["octavo-agent", "octavo-aggregator"] {
        let archive = release.path(&format!("{image}-{VERSION}.oci.tar"));
        let index = Image::index(&archive);
        let entries = index["manifests"].as_array().unwrap();
        let [entry] = entries.as_slice() else { panic!("{index}") };
        let platform = serde_json::json!({"architecture": architecture(), "os": "linux"});
        assert_eq!(entry["platform"], platform);
        let opened = Image::open(&archive);
        assert_eq!(opened.digest, entry["digest"]);
        let root = opened.root();
        let version = inside(root.path(), &[image, "--version"]);
        assert_eq!(version, format!("{image} {VERSION}\n"));
        // The SBOM describes the image by its digest.
        let sbom = format!("{image}-{VERSION}-image-{}.cdx.json", architecture());
        let sbom = fs::read_to_string(release.path(&sbom)).unwrap();
        assert!(sbom.contains(opened.digest.trim_start_matches("sha256:")), "{image}");
    }
}
