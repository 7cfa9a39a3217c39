//! Stores a [`World`] in a directory, so that it outlives every client and all clients share it.
//!
//! ```text
//!  state.json   generation and world; only replaced by rename
//!  state.tmp    the next one while it is written; a partial one is overwritten, never read
//!  lock         flock'ed by each writer
//!  faults.yaml  see `fault`
//! ```
//!
//! Readers take no lock: a renamed file never changes. They read its first bytes, which contain the generation, and the
//! rest only if it is new to them. Writers sync the file before the rename and the directory after it, so a crash at
//! any point leaves the old world or the new one.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::fault::RuleError;
use crate::location::Location;
use crate::model::{Code, World};
use crate::scenario::{Scenario, ScenarioError};

const STATE: &str = "state.json";
const NEXT: &str = "state.tmp";
const LOCK: &str = "lock";
const FORMAT: u32 = 1;

/// Number of bytes read for the generation.
const HEAD: u64 = 64;

/// A machine in a directory.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    cache: Mutex<Option<Cached>>,
}

/// Why a machine cannot be read or changed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The state directory is empty and there is no scenario.
    #[error("{0} contains no state, and no scenario is set")]
    NoScenario(PathBuf),
    /// The scenario cannot be used.
    #[error("cannot create the machine from its scenario")]
    Scenario(#[from] ScenarioError),
    /// The scenario's faults cannot be stored.
    #[error("cannot store the faults of the scenario")]
    Faults(#[from] RuleError),
    /// A file operation failed.
    #[error("cannot {doing} {path}")]
    File {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The state cannot be parsed.
    #[error(
        "{path} is not a state of this version of nvml-sim (format {FORMAT}); create the machine again with nvml-simctl init --force"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
}

/// The written state. The order of the fields is part of the format: the head is read separately.
#[derive(Debug, Serialize, Deserialize)]
struct File1<W> {
    format: u32,
    generation: u64,
    world: W,
}

/// Identity of a state. The generation alone is not enough if a directory is deleted and recreated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    generation: u64,
    inode: u64,
    modified: (i64, i64),
}

#[derive(Debug, Clone)]
struct Cached {
    version: Version,
    world: Arc<World>,
}

impl Store {
    /// Opens the machine at a location, or creates it from the scenario if the state directory has none.
    pub fn open(location: &Location) -> Result<Self, StoreError> {
        let store = Self::at(&location.state);
        if store.has_state() {
            return Ok(store);
        }
        let no_scenario = || StoreError::NoScenario(location.state.clone());
        let scenario = location.scenario.as_deref().ok_or_else(no_scenario)?;
        let scenario = Scenario::read(scenario)?;
        store.create(&scenario, IfPresent::Keep)?;
        Ok(store)
    }

    /// The store in a directory, with or without a state.
    pub fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), cache: Mutex::new(None) }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether there is a state.
    pub fn has_state(&self) -> bool {
        self.path(STATE).exists()
    }

    /// Creates the machine of a scenario. Of several concurrent calls one creates it and the others find it.
    pub fn create(&self, scenario: &Scenario, present: IfPresent) -> Result<(), StoreError> {
        fs::create_dir_all(&self.directory).map_err(self.failed("make", ""))?;
        let _lock = self.lock()?;
        if present == IfPresent::Keep && self.has_state() {
            return Ok(());
        }
        let mut world = scenario.world()?;
        let mut generation = 0;
        // An unreadable one has no process that could still hold it.
        if let Ok(before) = self.load() {
            generation = before.version.generation;
            world.follow(&before.world);
        }
        crate::fault::write_rules(&self.directory, &scenario.faults()?)?;
        self.write(generation.saturating_add(1), &world)
    }

    /// The current world. Cheap if nothing changed since the last call.
    pub fn read(&self) -> Result<Arc<World>, StoreError> {
        self.load().map(|cached| cached.world)
    }

    /// Changes the world under the lock. The outer result is the store's, the inner one the operation's; a rejected
    /// operation writes nothing.
    pub fn change<T>(
        &self,
        operation: impl FnOnce(&mut World) -> Result<T, Code>,
    ) -> Result<Result<T, Code>, StoreError> {
        let _lock = self.lock()?;
        let before = self.load()?;
        let mut world = World::clone(&before.world);
        let answer = match operation(&mut world) {
            Ok(answer) => answer,
            Err(code) => return Ok(Err(code)),
        };
        if world != *before.world {
            self.write(before.version.generation.saturating_add(1), &world)?;
        }
        Ok(Ok(answer))
    }

    fn load(&self) -> Result<Cached, StoreError> {
        let mut file = File::open(self.path(STATE)).map_err(self.failed("open", STATE))?;
        let mut bytes = Vec::new();
        (&mut file).take(HEAD).read_to_end(&mut bytes).map_err(self.failed("read", STATE))?;
        let metadata = file.metadata().map_err(self.failed("read the metadata of", STATE))?;
        let version = Version {
            generation: generation_in(&bytes),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        };
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cache.as_ref().filter(|cached| cached.version == version) {
            return Ok(cached.clone());
        }
        file.read_to_end(&mut bytes).map_err(self.failed("read", STATE))?;
        let read: File1<World> = serde_json::from_slice(&bytes)
            .map_err(|source| StoreError::Unreadable { path: self.path(STATE), source })?;
        if read.format != FORMAT {
            let found = format!("its format is {}", read.format);
            return Err(StoreError::Unreadable {
                path: self.path(STATE),
                source: serde::de::Error::custom(found),
            });
        }
        let mut world = read.world;
        world.attach_tables();
        let cached = Cached { version, world: Arc::new(world) };
        *cache = Some(cached.clone());
        Ok(cached)
    }

    fn write(&self, generation: u64, world: &World) -> Result<(), StoreError> {
        let content = File1 { format: FORMAT, generation, world };
        let bytes = serde_json::to_vec(&content)
            .map_err(|source| StoreError::Unreadable { path: self.path(STATE), source })?;
        let mut file = File::create(self.path(NEXT)).map_err(self.failed("create", NEXT))?;
        file.write_all(&bytes).map_err(self.failed("write", NEXT))?;
        file.sync_all().map_err(self.failed("sync", NEXT))?;
        fs::rename(self.path(NEXT), self.path(STATE)).map_err(self.failed("rename", NEXT))?;
        let directory = File::open(&self.directory).map_err(self.failed("open", ""))?;
        directory.sync_all().map_err(self.failed("sync", ""))
    }

    /// Exclusive among processes and, because each call opens the file again, among threads. Released with the file.
    fn lock(&self) -> Result<File, StoreError> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(self.path(LOCK))
            .map_err(self.failed("open", LOCK))?;
        file.lock().map_err(self.failed("lock", LOCK))?;
        Ok(file)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn failed(&self, doing: &'static str, name: &str) -> impl FnOnce(io::Error) -> StoreError {
        let path = self.path(name);
        move |source| StoreError::File { doing, path, source }
    }
}

/// Effect of [`Store::create`] on an existing state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfPresent {
    /// Retains it.
    Keep,
    /// Replaces it.
    Replace,
}

/// The generation in the head of a state; 0, which no written state has, if it is missing.
fn generation_in(head: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(head);
    let after = text.split_once("\"generation\":").map(|(_, rest)| rest);
    let digits = after.and_then(|rest| rest.split_once(','));
    digits.and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Slot;

    const SCENARIO: &str = "
machine: m
gpus:
- {board: A100_40GB, mig: enabled}
";

    fn location(directory: &Path) -> Location {
        let scenario = directory.join("m.yaml");
        fs::write(&scenario, SCENARIO).unwrap();
        Location { scenario: Some(scenario), state: directory.join("state") }
    }

    fn instances(store: &Store) -> usize {
        let world = store.read().unwrap();
        world.gpu(Slot(0)).unwrap().mig().unwrap().instances.len()
    }

    fn create(store: &Store) -> Result<u32, Code> {
        store.change(|world| world.create_gi(Slot(0), 19, None)).unwrap()
    }

    #[test]
    fn two_handles_see_one_machine() {
        let directory = tempfile::tempdir().unwrap();
        let location = location(directory.path());
        let (one, other) = (Store::open(&location).unwrap(), Store::open(&location).unwrap());
        assert_eq!(instances(&other), 0);
        for count in 1..=7 {
            create(&one).unwrap();
            assert_eq!((instances(&one), instances(&other)), (count, count));
        }
        assert_eq!(create(&other), Err(Code::InsufficientResources));
    }

    #[test]
    fn read_without_change_returns_the_same_object() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&location(directory.path())).unwrap();
        let before = store.read().unwrap();
        assert!(Arc::ptr_eq(&before, &store.read().unwrap()));
        create(&store).unwrap();
        assert!(!Arc::ptr_eq(&before, &store.read().unwrap()));
    }

    #[test]
    fn rejected_and_empty_operations_write_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&location(directory.path())).unwrap();
        let before = fs::read(store.path(STATE)).unwrap();
        let refused = store.change(|world| {
            world.create_gi(Slot(0), 19, None)?;
            Err::<(), _>(Code::Unknown)
        });
        assert_eq!(refused.unwrap(), Err(Code::Unknown));
        store.change(|_| Ok(())).unwrap().unwrap();
        assert_eq!(fs::read(store.path(STATE)).unwrap(), before);
    }

    #[test]
    fn partial_write_before_crash_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let location = location(directory.path());
        let store = Store::open(&location).unwrap();
        create(&store).unwrap();
        let whole = fs::read(store.path(STATE)).unwrap();
        for length in [0, 1, whole.len() / 2, whole.len()] {
            fs::write(store.path(NEXT), &whole[..length]).unwrap();
            let after = Store::open(&location).unwrap();
            assert_eq!(instances(&after), 1);
        }
        create(&store).unwrap();
        assert_eq!(instances(&store), 2);
    }

    #[test]
    fn damaged_state_is_an_error_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&location(directory.path())).unwrap();
        fs::write(store.path(STATE), "{\"format\":1,").unwrap();
        let error = store.read().unwrap_err().to_string();
        assert!(
            error.contains("state.json is not a state of this version of nvml-sim (format 1)"),
            "{error}"
        );
        assert!(error.contains("init --force"), "{error}");
    }

    #[test]
    fn state_of_another_format_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&location(directory.path())).unwrap();
        let text = fs::read_to_string(store.path(STATE)).unwrap();
        fs::write(store.path(STATE), text.replace("\"format\":1,", "\"format\":2,")).unwrap();
        let error = std::error::Error::source(&store.read().unwrap_err()).unwrap().to_string();
        assert_eq!(error, "its format is 2");
    }

    #[test]
    fn one_of_many_concurrent_starts_creates_machine_and_no_change_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let location = location(directory.path());
        let mut ids: Vec<u32> = std::thread::scope(|scope| {
            let start = || create(&Store::open(&location).unwrap()).unwrap();
            let started: Vec<_> = (0..7).map(|_| scope.spawn(start)).collect();
            started.into_iter().map(|one| one.join().unwrap()).collect()
        });
        ids.sort_unstable();
        assert_eq!(ids, [7, 8, 9, 10, 11, 12, 13]);
    }

    #[test]
    fn recreated_machine_is_seen_by_open_handles() {
        let directory = tempfile::tempdir().unwrap();
        let location = location(directory.path());
        let store = Store::open(&location).unwrap();
        create(&store).unwrap();
        assert_eq!(instances(&store), 1);
        let before = store.read().unwrap();
        let scenario = Scenario::read(location.scenario.as_deref().unwrap()).unwrap();
        Store::at(&location.state).create(&scenario, IfPresent::Replace).unwrap();
        assert_eq!(instances(&store), 0);
        let after = store.read().unwrap();
        assert_eq!(
            after.link_status(&before.stamp()),
            Err(Code::Uninitialized),
            "handles of the machine before would name instances of this one"
        );
        assert!(after.last_event >= before.last_event);
    }

    #[test]
    fn empty_directory_without_scenario_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let location = Location { scenario: None, state: directory.path().to_owned() };
        let error = Store::open(&location).unwrap_err();
        assert!(matches!(error, StoreError::NoScenario(_)));
    }
}
