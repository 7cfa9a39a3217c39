//! The files of one Neuron device: where they are, and what could not be read of them.
//!
//! Up to release 2.30 each has its place. 2.31 moved some, and nobody outside has published where to; so for releases that are not known, a
//! file that is not in its place is looked for by its name, in bounds, below the device. A name found twice names nothing.

use crate::domain::inventory::{DriverLayout, Problem};
use crate::hw::sysfs::Sysfs;

use super::{
    CONNECTED, CORE_COUNT, CORE_MEMORY, MEMORY_UNCORRECTED, MOST_CORES, NAME, SERIAL,
    SRAM_UNCORRECTED, problem, values,
};

const CORE: &str = "neuron_core";

/// What every release that is known has, whatever the chip.
const OF_ALL: [&str; 3] = [NAME, CORE_COUNT, CONNECTED];
/// What it has but of the first Inferentia, which tells no serial number and counts no errors.
const OF_LATER: [&str; 3] = [SERIAL, MEMORY_UNCORRECTED, SRAM_UNCORRECTED];
const FIRST: &str = "Inferentia";

/// How deep a file is looked for, and among how many: eight cores have about 1300 entries.
const DEPTH: usize = 6;
const MOST_FOUND: usize = 4096;

/// Where a file is, and by which end of its path it is known elsewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) known: &'static str,
    pub(super) name: &'static str,
}

/// One device's.
#[derive(Debug)]
pub(super) struct Files<'a> {
    sys: &'a Sysfs,
    root: String,
    /// Its cores' folders, in the order of their numbers.
    cores: Vec<String>,
    /// What lies below the root, where it is not arranged as it is known to be.
    moved: Option<Vec<String>>,
    problems: Vec<Problem>,
}

/// A file that was looked for.
enum Found {
    At(String),
    /// In so many places.
    Several(usize),
    Nowhere,
}

impl<'a> Files<'a> {
    /// Of the device in the folder `root`, whose driver `may_differ` from those that are known.
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

    /// How many folders of cores there are.
    pub(super) fn cores(&self) -> usize {
        self.cores.len()
    }

    pub(super) fn note(&mut self, what: &str, error: String) {
        self.problems.push(problem(what, error));
    }

    pub(super) fn take_problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }

    /// The value of a file of the device.
    pub(super) fn value<T>(
        &mut self,
        known: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let path = self.path(place(known))?;
        let read = values::of(self.sys.told(&path), parse);
        self.took(&path, read)
    }

    /// The value of a file of the device that lists something.
    pub(super) fn list<T>(
        &mut self,
        known: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let path = self.path(place(known))?;
        let read = values::list_of(self.sys.told(&path), parse);
        self.took(&path, read)
    }

    /// The value of a file of the core that comes in this order.
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

    /// The value of a file that cores have, where it was found below the device and below none of them.
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

    /// The file in its place, or the nearest of this name among those that may be it.
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

    /// Whether nothing is missing: of a driver that moved some files only, those would be absent without a word.
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
            // Nearest first: a core's folder of another kind, deeper, is not the core.
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

/// A file of the device, known elsewhere by its own name.
fn place(known: &'static str) -> Place {
    Place {
        known,
        name: known.rsplit('/').next().unwrap_or(known),
    }
}
