//! Attribute files of one Neuron device, with their paths and read errors.
//!
//! Up to release 2.30, each file has a fixed path. Release 2.31 moved some to undocumented paths. In unknown releases,
//! a file that is not at its known path is searched by name below the device, within limits. A name that is found more
//! than once is ambiguous and ignored.

use crate::domain::inventory::{DriverLayout, Problem};
use crate::hw::sysfs::Sysfs;

use super::{
    CONNECTED, CORE_COUNT, CORE_MEMORY, MEMORY_UNCORRECTED, MOST_CORES, NAME, SERIAL,
    SRAM_UNCORRECTED, problem, values,
};

const CORE: &str = "neuron_core";

/// Files that every known release has for all chips.
const OF_ALL: [&str; 3] = [NAME, CORE_COUNT, CONNECTED];
/// Files that they have for all chips except the first Inferentia, which has no serial number and no error counters.
const OF_LATER: [&str; 3] = [SERIAL, MEMORY_UNCORRECTED, SRAM_UNCORRECTED];
const FIRST: &str = "Inferentia";

/// Search depth, and maximum number of entries: eight cores have about 1300.
const DEPTH: usize = 6;
const MOST_FOUND: usize = 4096;

/// The known path of a file, and the end of the path to search for elsewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) known: &'static str,
    pub(super) name: &'static str,
}

/// The attribute files of one device.
#[derive(Debug)]
pub(super) struct Files<'a> {
    sys: &'a Sysfs,
    root: String,
    /// The directories of the cores, in ascending order.
    cores: Vec<String>,
    /// All paths below the root, if the directory layout is unknown.
    moved: Option<Vec<String>>,
    problems: Vec<Problem>,
}

/// Result of a file search.
enum Found {
    At(String),
    /// This many candidates.
    Several(usize),
    Nowhere,
}

impl<'a> Files<'a> {
    /// Opens the device directory `root`. If `may_differ` is set, the driver's layout may be unknown.
    pub(super) fn open(sys: &'a Sysfs, root: &str, may_differ: bool) -> Self {
        let listed = super::numbered(sys, root, CORE);
        let unread = listed.as_ref().err().map(ToString::to_string);
        let numbers = listed.unwrap_or_default();
        let cores: Vec<String> = numbers
            .iter()
            .take(MOST_CORES)
            .map(|number| format!("{root}/{CORE}{number}"))
            .collect();
        let mut files = Self {
            sys,
            root: root.to_owned(),
            cores,
            moved: None,
            problems: Vec::new(),
        };
        if let Some(error) = unread {
            files.note("its folder", error);
        }
        if may_differ && !files.is_arranged_as_known() {
            files.search();
        }
        files
    }

    pub(super) fn layout(&self) -> DriverLayout {
        match self.moved {
            None => DriverLayout::Known,
            Some(_) => DriverLayout::Unknown,
        }
    }

    /// Returns the number of core directories.
    pub(super) fn cores(&self) -> usize {
        self.cores.len()
    }

    pub(super) fn note(&mut self, what: &str, error: String) {
        self.problems.push(problem(what, error));
    }

    pub(super) fn take_problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }

    /// Reads a value of the device.
    pub(super) fn value<T>(
        &mut self,
        known: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let path = self.path(place(known))?;
        let read = values::of(self.sys.told(&path), parse);
        self.took(&path, read)
    }

    /// Reads a list of the device.
    pub(super) fn list<T>(
        &mut self,
        known: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let path = self.path(place(known))?;
        let read = values::list_of(self.sys.told(&path), parse);
        self.took(&path, read)
    }

    /// Reads a value of the core with this position.
    pub(super) fn core_value<T>(
        &mut self,
        core: usize,
        place: Place,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let folder = self.cores.get(core)?.clone();
        let known = format!("{folder}/{}", place.known);
        let below = |path: &str| path.starts_with(&format!("{folder}/"));
        let found = self.find(known, place.name, below);
        let path = self.settled(found, place.known)?;
        let read = values::of(self.sys.told(&path), parse);
        self.took(&path, read)
    }

    /// Reads a core's file that was found below the device but outside all cores.
    pub(super) fn moved_value<T>(
        &mut self,
        place: Place,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        self.moved.as_ref()?;
        let path = self.path(place)?;
        let read = values::of(self.sys.told(&path), parse);
        self.took(&path, read)
    }

    fn took<T>(&mut self, path: &str, read: Result<Option<T>, String>) -> Option<T> {
        read.unwrap_or_else(|error| {
            let what = path.strip_prefix(&format!("{}/", self.root));
            self.note(what.unwrap_or(path), error);
            None
        })
    }

    fn path(&mut self, place: Place) -> Option<String> {
        let known = format!("{}/{}", self.root, place.known);
        let cores = &self.cores;
        let is_devices = |path: &str| {
            !cores
                .iter()
                .any(|core| path.starts_with(&format!("{core}/")))
        };
        let found = self.find(known, place.name, is_devices);
        self.settled(found, place.known)
    }

    /// Returns the known path, or else the shallowest accepted path with this name.
    fn find(&self, known: String, name: &str, may_be: impl Fn(&str) -> bool) -> Found {
        let Some(moved) = &self.moved else {
            return Found::At(known);
        };
        if self.sys.is_there(&known) {
            return Found::At(known);
        }
        let end = format!("/{name}");
        let depth = |path: &str| path.matches('/').count();
        let all: Vec<&String> = moved
            .iter()
            .filter(|path| path.ends_with(&end) && may_be(path))
            .collect();
        let nearest = all.iter().map(|path| depth(path)).min();
        let nearest: Vec<&&String> = all
            .iter()
            .filter(|path| Some(depth(path)) == nearest)
            .collect();
        match nearest.as_slice() {
            [] => Found::Nowhere,
            [path] => Found::At((**path).clone()),
            several => Found::Several(several.len()),
        }
    }

    fn settled(&mut self, found: Found, known: &str) -> Option<String> {
        match found {
            Found::At(path) => Some(path),
            Found::Nowhere => None,
            Found::Several(count) => {
                self.note(
                    known,
                    format!("it is in {count} places, and none of them is known"),
                );
                None
            }
        }
    }

    /// Checks that no expected file is missing. If a driver moved only some files, these would otherwise be silently
    /// absent.
    fn is_arranged_as_known(&self) -> bool {
        let has = |folder: &str, file: &str| self.sys.is_there(&format!("{folder}/{file}"));
        let name = self.sys.text(&format!("{}/{NAME}", self.root));
        let of_later = (name.as_deref() != Some(FIRST)).then_some(OF_LATER);
        let expected = OF_ALL.into_iter().chain(of_later.into_iter().flatten());
        expected.into_iter().all(|file| has(&self.root, file))
            && !self.cores.is_empty()
            && self.cores.iter().all(|core| has(core, CORE_MEMORY.known))
    }

    fn search(&mut self) {
        let found = self.sys.below(&self.root, DEPTH, MOST_FOUND);
        if self.cores.is_empty() {
            let folders = found.iter().filter(|entry| entry.is_folder);
            let mut cores: Vec<(u32, String)> = folders
                .filter_map(|entry| {
                    let name = entry.path.rsplit('/').next()?.to_owned();
                    let number = *values::numbered(&[name], CORE).first()?;
                    Some((number, entry.path.clone()))
                })
                .collect();
            // Shallowest first: a deeper directory of the same name is not the core.
            cores.sort_by_key(|(number, path)| (*number, path.matches('/').count()));
            cores.dedup_by_key(|(number, _)| *number);
            self.cores = cores
                .into_iter()
                .take(MOST_CORES)
                .map(|(_, path)| path)
                .collect();
        }
        let files = found.into_iter().filter(|entry| !entry.is_folder);
        self.moved = Some(files.map(|entry| entry.path).collect());
    }
}

/// A file of the device, searched elsewhere by its file name.
fn place(known: &'static str) -> Place {
    Place {
        known,
        name: known.rsplit('/').next().unwrap_or(known),
    }
}
