//! Attribute files of one Neuron device, with their paths and read errors.
//!
//! Up to release 2.30, each file has a fixed path. Release 2.31 moved some to undocumented paths. In unknown releases,
//! a file that is not at its known path is searched by name below the device, within limits. A name that is found more
//! than once is ambiguous and ignored.

use octavo_model::inventory::{DriverLayout, ReadProblem};

use super::{
    CONNECTED, CORE_COUNT, CORE_MEMORY, MAX_CORES, MEMORY_UNCORRECTED, NAME, SERIAL,
    SRAM_UNCORRECTED, problem, values,
};
use crate::sysfs::Sysfs;

const CORE: &str = "neuron_core";

/// Files that every known release has for all chips.
const FILES_OF_ALL_CHIPS: [&str; 3] = [NAME, CORE_COUNT, CONNECTED];
/// Files that they have for all chips except the first Inferentia, which has no serial number and no error counters.
const FILES_OF_LATER_CHIPS: [&str; 3] = [SERIAL, MEMORY_UNCORRECTED, SRAM_UNCORRECTED];
const FIRST_INFERENTIA: &str = "Inferentia";

/// Search depth, and maximum number of entries: eight cores have about 1300.
const MAX_SEARCH_DEPTH: usize = 6;
const MAX_SEARCH_ENTRIES: usize = 4096;

/// The known path of a file, and the end of the path to search for elsewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttributePath {
    pub(super) path: &'static str,
    pub(super) suffix: &'static str,
}

/// The attribute files of one device.
#[derive(Debug)]
pub(super) struct Files<'a> {
    sys: &'a Sysfs,
    root: String,
    /// The directories of the cores, in ascending order.
    cores: Vec<String>,
    /// All paths below the root, if the directory layout is unknown.
    search_paths: Option<Vec<String>>,
    problems: Vec<ReadProblem>,
}

/// Result of a file search.
enum SearchResult {
    Unique(String),
    /// This many candidates.
    Ambiguous(usize),
    Missing,
}

impl<'a> Files<'a> {
    /// Opens the device directory `root`. If `may_differ` is set, the driver's layout may be unknown.
    pub(super) fn open(sys: &'a Sysfs, root: &str, may_differ: bool) -> Self {
        let listed = super::numbered(sys, root, CORE);
        let unread = listed.as_ref().err().map(ToString::to_string);
        let numbers = listed.unwrap_or_default();
        let cores: Vec<String> =
            numbers.iter().take(MAX_CORES).map(|number| format!("{root}/{CORE}{number}")).collect();
        let mut files =
            Self { sys, root: root.to_owned(), cores, search_paths: None, problems: Vec::new() };
        if let Some(error) = unread {
            files.add_problem("its directory", error);
        }
        if may_differ && !files.has_known_layout() {
            files.search();
        }
        files
    }

    pub(super) fn layout(&self) -> DriverLayout {
        match self.search_paths {
            None => DriverLayout::Known,
            Some(_) => DriverLayout::Unknown,
        }
    }

    /// Returns the number of core directories.
    pub(super) fn cores(&self) -> usize {
        self.cores.len()
    }

    pub(super) fn add_problem(&mut self, what: &str, error: String) {
        self.problems.push(problem(what, error));
    }

    pub(super) fn take_problems(&mut self) -> Vec<ReadProblem> {
        std::mem::take(&mut self.problems)
    }

    /// Reads a value of the device.
    pub(super) fn value<T>(
        &mut self,
        known: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let path = self.path(place(known))?;
        self.read_value(&path, parse)
    }

    /// Reads a list of the device.
    pub(super) fn list<T>(
        &mut self,
        known: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let path = self.path(place(known))?;
        let read = values::parse_list(self.sys.read_text(&path), parse);
        self.record_error(&path, read)
    }

    /// Reads a value of the core with this position.
    pub(super) fn core_value<T>(
        &mut self,
        core: usize,
        place: AttributePath,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let dir = self.cores.get(core)?.clone();
        let known = format!("{dir}/{}", place.path);
        let below = |path: &str| path.starts_with(&format!("{dir}/"));
        let found = self.find(known, place.suffix, below);
        let path = self.resolve(found, place.path)?;
        self.read_value(&path, parse)
    }

    /// Reads a core's file that was found below the device but outside all cores.
    pub(super) fn moved_value<T>(
        &mut self,
        place: AttributePath,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        self.search_paths.as_ref()?;
        let path = self.path(place)?;
        self.read_value(&path, parse)
    }

    fn read_value<T>(&mut self, path: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let read = values::parse_value(self.sys.read_text(path), parse);
        self.record_error(path, read)
    }

    fn record_error<T>(&mut self, path: &str, read: Result<Option<T>, String>) -> Option<T> {
        read.unwrap_or_else(|error| {
            let what = path.strip_prefix(&format!("{}/", self.root));
            self.add_problem(what.unwrap_or(path), error);
            None
        })
    }

    fn path(&mut self, place: AttributePath) -> Option<String> {
        let known = format!("{}/{}", self.root, place.path);
        let cores = &self.cores;
        let is_devices =
            |path: &str| !cores.iter().any(|core| path.starts_with(&format!("{core}/")));
        let found = self.find(known, place.suffix, is_devices);
        self.resolve(found, place.path)
    }

    /// Returns the known path, or else the shallowest accepted path with this name.
    fn find(&self, known: String, name: &str, may_be: impl Fn(&str) -> bool) -> SearchResult {
        let Some(moved) = &self.search_paths else {
            return SearchResult::Unique(known);
        };
        if self.sys.exists(&known) {
            return SearchResult::Unique(known);
        }
        let end = format!("/{name}");
        let depth = |path: &str| path.matches('/').count();
        let all: Vec<&String> =
            moved.iter().filter(|path| path.ends_with(&end) && may_be(path)).collect();
        let nearest = all.iter().map(|path| depth(path)).min();
        let nearest: Vec<&&String> =
            all.iter().filter(|path| Some(depth(path)) == nearest).collect();
        match nearest.as_slice() {
            [] => SearchResult::Missing,
            [path] => SearchResult::Unique((**path).clone()),
            several => SearchResult::Ambiguous(several.len()),
        }
    }

    fn resolve(&mut self, found: SearchResult, known: &str) -> Option<String> {
        match found {
            SearchResult::Unique(path) => Some(path),
            SearchResult::Missing => None,
            SearchResult::Ambiguous(count) => {
                self.add_problem(
                    known,
                    format!("it was found in {count} places, none of which is a known path"),
                );
                None
            }
        }
    }

    /// Checks that no expected file is missing. If a driver moved only some files, these would otherwise be silently
    /// absent.
    fn has_known_layout(&self) -> bool {
        let has = |dir: &str, file: &str| self.sys.exists(&format!("{dir}/{file}"));
        let name = self.sys.text(&format!("{}/{NAME}", self.root));
        let of_later = (name.as_deref() != Some(FIRST_INFERENTIA)).then_some(FILES_OF_LATER_CHIPS);
        let expected = FILES_OF_ALL_CHIPS.into_iter().chain(of_later.into_iter().flatten());
        expected.into_iter().all(|file| has(&self.root, file))
            && !self.cores.is_empty()
            && self.cores.iter().all(|core| has(core, CORE_MEMORY.path))
    }

    fn search(&mut self) {
        let found = self.sys.walk(&self.root, MAX_SEARCH_DEPTH, MAX_SEARCH_ENTRIES);
        if self.cores.is_empty() {
            let directories = found.iter().filter(|entry| entry.is_dir);
            let mut cores: Vec<(u32, String)> = directories
                .filter_map(|entry| {
                    let name = entry.path.rsplit('/').next()?.to_owned();
                    let number = *values::numbered(&[name], CORE).first()?;
                    Some((number, entry.path.clone()))
                })
                .collect();
            // Shallowest first: a deeper directory of the same name is not the core.
            cores.sort_by_key(|(number, path)| (*number, path.matches('/').count()));
            cores.dedup_by_key(|(number, _)| *number);
            self.cores = cores.into_iter().take(MAX_CORES).map(|(_, path)| path).collect();
        }
        let files = found.into_iter().filter(|entry| !entry.is_dir);
        self.search_paths = Some(files.map(|entry| entry.path).collect());
    }
}

/// A file of the device, searched elsewhere by its file name.
fn place(known: &'static str) -> AttributePath {
    AttributePath { path: known, suffix: known.rsplit('/').next().unwrap_or(known) }
}
