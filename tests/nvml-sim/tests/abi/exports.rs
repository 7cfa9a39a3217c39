//! Every function of the header exists, and none crashes with nulls or invalid handles.

use std::collections::BTreeMap;

use libloading::Library;

use crate::support::{HGX_A100, Machine, here};

type AnyFunction = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64) -> u32;

const UNINITIALIZED: u32 = 1;
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const NOT_FOUND: u32 = 6;

fn names() -> Vec<String> {
    let list = std::fs::read_to_string(here().join("data/nvml-functions.txt")).unwrap();
    list.lines().map(str::to_owned).collect()
}

/// Functions that open and close sessions, and the one that returns no code.
fn is_special(name: &str) -> bool {
    name.starts_with("nvmlInit") || name == "nvmlShutdown" || name == "nvmlErrorString"
}

/// Return codes of all other functions for the same arguments, grouped.
fn answers(
    library: &Library,
    first: u64,
    rest: u64,
    take: impl Fn(&str) -> bool,
) -> BTreeMap<u32, Vec<String>> {
    let mut answers: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for name in names().into_iter().filter(|name| !is_special(name) && take(name)) {
        // SAFETY: all exported functions but the special ones take at most eight integers or pointers and return a code.
        let function = unsafe { library.get::<AnyFunction>(name.as_bytes()) }.unwrap();
        // SAFETY: the arguments are null, or point to a buffer that is larger than any struct of the interface.
        let code = unsafe { function(first, rest, rest, rest, rest, rest, rest, rest) };
        answers.entry(code).or_default().push(name);
    }
    answers
}

fn open(machine: &Machine) -> Library {
    // SAFETY: the library is ours; loading it runs no code but the loader's.
    let library = unsafe { Library::new(machine.library()) }.unwrap();
    {
        // SAFETY: nvmlInit_v2 has no arguments and returns a code.
        let init = unsafe { library.get::<unsafe extern "C" fn() -> u32>(b"nvmlInit_v2") }.unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { init() }, 0);
    }
    library
}

#[test]
fn every_name_of_the_header_is_exported() {
    let names = names();
    assert!(names.len() >= 439, "the list of names was cut to {}", names.len());
    assert!(names.is_sorted_by(|one, other| one < other));
    let machine = Machine::without_scenario();
    // SAFETY: the library is ours; loading it runs no code but the loader's.
    let library = unsafe { Library::new(machine.library()) }.unwrap();
    // SAFETY: only looked up, not called.
    let lacks = |name: &String| unsafe { library.get::<AnyFunction>(name.as_bytes()) }.is_err();
    let missing: Vec<&String> = names.iter().filter(|name| lacks(name)).collect();
    assert_eq!(missing, Vec::<&String>::new());
}

#[test]
fn library_of_older_driver_lacks_names_and_otherwise_works() {
    let machine = Machine::new(HGX_A100);
    let mut bytes = std::fs::read(machine.library()).unwrap();
    let newer = ["nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetMinorNumber"];
    nvml_sim::elf::hide(&mut bytes, &newer).unwrap();
    std::fs::write(machine.library(), bytes).unwrap();
    let nvml = machine.open();
    assert!(nvml.0.nvmlDeviceGetGpuFabricInfoV.is_err());
    assert!(nvml.0.nvmlDeviceGetMinorNumber.is_err());
    assert_eq!(nvml.count(), Ok(8));
    let wrapper =
        nvml_wrapper::Nvml::builder().lib_path(machine.library().as_os_str()).init().unwrap();
    let device = wrapper.device_by_index(0).unwrap();
    assert!(matches!(
        device.minor_number(),
        Err(nvml_wrapper::error::NvmlError::FailedToLoadSymbol(_))
    ));
}

#[test]
fn tool_creates_library_in_new_directory() {
    let machine = Machine::new(HGX_A100);
    let old = machine.path("old/libnvidia-ml.so.1");
    let mut tool = std::process::Command::new(env!("CARGO_BIN_EXE_nvml-simctl"));
    tool.args(["library", "--without", "nvmlDeviceGetName", "--from"]);
    tool.arg(machine.library()).arg("--out").arg(&old);
    crate::support::succeeded(&tool.output().unwrap());
    // SAFETY: the library is ours; loading it runs no code but the loader's.
    let library = unsafe { Library::new(old) }.unwrap();
    // SAFETY: only looked up, not called.
    let found = unsafe { library.get::<AnyFunction>(b"nvmlDeviceGetName") };
    assert!(found.is_err());
}

#[test]
fn every_function_fails_before_init() {
    let machine = Machine::new(HGX_A100);
    // SAFETY: the library is ours; loading it runs no code but the loader's.
    let library = unsafe { Library::new(machine.library()) }.unwrap();
    let answers = answers(&library, 0, 0, |_| true);
    assert_eq!(answers.keys().collect::<Vec<_>>(), [&UNINITIALIZED]);
}

#[test]
fn nulls_are_invalid_arguments() {
    let machine = Machine::new(HGX_A100);
    let library = open(&machine);
    let answers = answers(&library, 0, 0, |_| true);
    assert_eq!(
        answers.keys().collect::<Vec<_>>(),
        [&INVALID_ARGUMENT, &NOT_SUPPORTED],
        "{answers:#?}"
    );
    assert!(answers[&INVALID_ARGUMENT].len() > 100, "{}", answers[&INVALID_ARGUMENT].len());
}

#[test]
fn valid_handle_with_null_arguments_is_invalid() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    let device = nvml.gpu(0).expose_provenance();
    let library = open(&machine);
    let takes_device = |name: &str| name.starts_with("nvmlDevice") && !is_lookup(name);
    let mut answers = answers(&library, device.try_into().unwrap(), 0, takes_device);
    // Setters have no pointer that could be null: mode 0 is valid.
    assert_eq!(
        answers.remove(&0),
        Some(vec![
            "nvmlDeviceSetComputeMode".to_owned(),
            "nvmlDeviceSetPersistenceMode".to_owned()
        ])
    );
    assert_eq!(
        answers.keys().collect::<Vec<_>>(),
        [&INVALID_ARGUMENT, &NOT_SUPPORTED, &NOT_FOUND],
        "{answers:#?}"
    );
}

#[test]
fn invalid_handle_is_an_invalid_argument_with_any_other_argument() {
    let machine = Machine::new(HGX_A100);
    let library = open(&machine);
    let mut buffer = vec![0_u64; 1 << 13];
    let rest = buffer.as_mut_ptr().expose_provenance();
    let takes_handle = |name: &str| {
        let device = name.starts_with("nvmlDevice") && !is_lookup(name);
        let instance =
            name.starts_with("nvmlGpuInstance") || name.starts_with("nvmlComputeInstance");
        device || instance || name.starts_with("nvmlEventSetWait") || name == "nvmlEventSetFree"
    };
    for bad in [1, 0x1234_5678, 0x5100_0000_0000_0000, u64::MAX] {
        let answers = answers(&library, bad, rest.try_into().unwrap(), takes_handle);
        assert_eq!(
            answers.keys().collect::<Vec<_>>(),
            [&INVALID_ARGUMENT, &NOT_SUPPORTED],
            "{bad:#x}: {answers:#?}"
        );
    }
}

/// Functions whose first argument is not a handle.
fn is_lookup(name: &str) -> bool {
    name.starts_with("nvmlDeviceGetHandleBy") || name.starts_with("nvmlDeviceGetCount")
}
