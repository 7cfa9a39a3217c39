//! A simulated machine of a test: a copy of the library with its scenario beside it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use nvml_sim::fault::{Rule, write_rules};
use nvml_sim::model::{Code, Slot, World};
use nvml_sim::store::Store;
use nvml_wrapper_sys::bindings::{self as sys, NvmlLib};
use tempfile::TempDir;

/// Eight A100 behind switches.
pub(crate) const HGX_A100: &str = "
machine: hgx-a100
driver: 580.95.05
gpus:
  - board: A100_80GB
    count: 8
links: nvswitch
";

/// One H100.
pub(crate) const ONE_H100: &str = "
machine: one-h100
driver: 580.95.05
gpus:
  - board: H100_80GB_SXM
";

/// A directory with a library that finds its scenario beside it.
pub(crate) struct Machine {
    directory: TempDir,
}

impl Machine {
    pub(crate) fn new(scenario: &str) -> Self {
        let machine = Self::without_scenario();
        std::fs::write(machine.path("nvml-sim.yaml"), scenario).unwrap();
        machine
    }

    pub(crate) fn without_scenario() -> Self {
        let directory = TempDir::new().unwrap();
        let machine = Self { directory };
        std::fs::copy(built_library(), machine.library()).unwrap();
        machine
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.path("libnvidia-ml.so.1")
    }

    pub(crate) fn load(&self) -> NvmlLib {
        // SAFETY: the library is ours; loading it runs no code but the loader's.
        unsafe { NvmlLib::new(self.library()) }.unwrap()
    }

    /// Loads and initializes the library.
    pub(crate) fn open(&self) -> Nvml {
        let nvml = Nvml(self.load());
        assert_eq!(nvml.init(), 0);
        nvml
    }

    pub(crate) fn store(&self) -> Store {
        Store::at(&self.path("nvml-sim.state"))
    }

    /// Changes the machine as its administrator.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut World) -> Result<T, Code>) -> T {
        self.store().change(act).unwrap().unwrap()
    }

    /// Replaces the faults, as YAML.
    pub(crate) fn faults(&self, yaml: &str) {
        let rules: Vec<Rule> = serde_saphyr::from_str(yaml).unwrap();
        write_rules(&self.path("nvml-sim.state"), &rules).unwrap();
    }

    /// Start and id of each GPU instance on the first GPU.
    pub(crate) fn geometry(&self) -> Vec<(u32, u32)> {
        let world = self.store().read().unwrap();
        let mig = world.gpu(Slot(0)).unwrap().mig().unwrap();
        let instances = mig.instances.iter();
        instances.map(|gi| (gi.placement.start, gi.id)).collect()
    }

    /// The C client on this machine.
    pub(crate) fn client(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&*C_CLIENT);
        command.arg(self.library()).args(arguments);
        command
    }
}

/// A loaded library; calls are as unsafe as in C.
pub(crate) struct Nvml(pub(crate) NvmlLib);

/// The bindings' function pointers are plain addresses, and the library is thread safe.
pub(crate) struct Shared(pub(crate) Nvml);

// SAFETY: every function of the interface may be called from any thread.
unsafe impl Sync for Shared {}

/// Calls a function of an [`Nvml`]; every pointer argument is to a live local of the right type.
macro_rules! call {
    ($nvml:expr, $name:ident $(, $argument:expr)*) => {{
        let function = $nvml.0.$name.as_ref().unwrap();
        // SAFETY: the pointers are to locals of the test, with the types of the bindings.
        unsafe { function($($argument),*) }
    }};
}

pub(crate) use call;

impl Nvml {
    pub(crate) fn init(&self) -> u32 {
        call!(self, nvmlInit_v2)
    }

    pub(crate) fn gpu(&self, index: u32) -> sys::nvmlDevice_t {
        let mut device = std::ptr::null_mut();
        assert_eq!(call!(self, nvmlDeviceGetHandleByIndex_v2, index, &raw mut device), 0);
        device
    }

    pub(crate) fn count(&self) -> Result<u32, u32> {
        let mut count = 0;
        match call!(self, nvmlDeviceGetCount_v2, &raw mut count) {
            0 => Ok(count),
            code => Err(code),
        }
    }

    pub(crate) fn minor(&self, device: sys::nvmlDevice_t) -> Result<u32, u32> {
        let mut minor = 0;
        match call!(self, nvmlDeviceGetMinorNumber, device, &raw mut minor) {
            0 => Ok(minor),
            code => Err(code),
        }
    }

    pub(crate) fn mig_on(&self, device: sys::nvmlDevice_t) {
        let mut status = 99;
        let code = call!(self, nvmlDeviceSetMigMode, device, 1, &raw mut status);
        assert_eq!((code, status), (0, 0));
    }

    pub(crate) fn create_gi(
        &self,
        device: sys::nvmlDevice_t,
        profile: u32,
    ) -> Result<sys::nvmlGpuInstance_t, u32> {
        let mut gi = std::ptr::null_mut();
        match call!(self, nvmlDeviceCreateGpuInstance, device, profile, &raw mut gi) {
            0 => Ok(gi),
            code => Err(code),
        }
    }
}

/// The library that Cargo built beside this test.
pub(crate) fn built_library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libnvml_sim.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}

/// The directory of this crate.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

static C_CLIENT: LazyLock<PathBuf> = LazyLock::new(|| {
    let needs = "a C compiler (Debian: apt-get install gcc libc6-dev)";
    build("walk-c", needs, |program| {
        let source = here().join("clients/c/walk.c");
        let mut compile = Command::new("cc");
        compile.args(["-std=gnu11", "-Wall", "-Werror", "-O1", "-o"]).args([
            program.as_os_str(),
            source.as_os_str(),
            OsStr::new("-ldl"),
        ]);
        compile
    })
});

/// Builds a client under a unique name and renames it, so that parallel runs do not conflict.
pub(crate) fn build(name: &str, needs: &str, compile: impl FnOnce(&Path) -> Command) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let draft = directory.join(format!("{name}-{}", std::process::id()));
    finish(&mut compile(&draft), needs);
    let program = directory.join(name);
    std::fs::rename(draft, &program).unwrap();
    program
}

/// Runs a command that must succeed; `needs` names what to install if it is missing.
#[track_caller]
pub(crate) fn finish(command: &mut Command, needs: &str) -> String {
    let program = command.get_program().to_owned();
    let output = command.output().unwrap_or_else(|error| {
        panic!("{} does not start ({error}); these tests need {needs}", program.display())
    });
    assert!(
        output.status.success(),
        "{} failed; these tests need {needs}\n{}",
        program.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    succeeded(&output)
}

#[track_caller]
pub(crate) fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}{errors}", output.status);
    text
}

/// Starts a client and waits until it has printed its first line.
pub(crate) fn start(mut command: Command) -> (Child, std::io::Lines<impl std::io::BufRead>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(output);
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    (child, lines)
}

/// Waits for a change by another thread or process.
pub(crate) fn eventually(mut is: impl FnMut() -> bool) -> bool {
    (0..500).any(|_| {
        let done = is();
        if !done {
            pause(Duration::from_millis(10));
        }
        done
    })
}

#[expect(clippy::disallowed_methods, reason = "a test that waits for another process")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
