//! State of the loaded library: its machine, its driver version, the open session.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fault::{self, Faults, Verdict};
use crate::location::{Environment, Location, SCENARIO_VARIABLE, STATE_VARIABLE};
use crate::model::{Code, DriverStamp, World};
use crate::store::{Store, StoreError};

use super::event_set::EventSet;
use super::gpm_sample::SampleBuffer;
use super::handle::GENERATION_MASK;
use super::log;
use super::setting::setting;

/// The machine of the library.
#[derive(Debug)]
pub(super) struct Library {
    store: Store,
    faults: Mutex<Faults>,
    /// The driver version of this library: the one loaded at its first initialization.
    version: Mutex<Option<String>>,
}

/// The session that `nvmlInit` opens.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) library: Arc<Library>,
    pub(super) stamp: DriverStamp,
    pub(super) generation: u16,
}

#[derive(Debug)]
struct State {
    library: Option<Arc<Library>>,
    session: Option<Session>,
    /// Number of `nvmlInit` calls without a matching `nvmlShutdown`.
    opened: u32,
    sessions: u64,
    sets: Numbered<EventSet>,
    samples: Numbered<SampleBuffer>,
}

/// The objects of the session that clients create and free, by number.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    made: u64,
    objects: BTreeMap<u64, T>,
}

static STATE: Mutex<State> = Mutex::new(State::NOTHING);

impl State {
    const NOTHING: Self = Self {
        library: None,
        session: None,
        opened: 0,
        sessions: 0,
        sets: Numbered::NONE,
        samples: Numbered::NONE,
    };

    /// Ends everything that clients created in the session.
    fn end_objects(&mut self) {
        self.sets.end();
        self.samples.end();
    }
}

impl Library {
    /// The directory of the machine's state.
    pub(super) fn state_directory(&self) -> &Path {
        self.store.directory()
    }

    pub(super) fn read(&self) -> Result<Arc<World>, Code> {
        self.store.read().map_err(|error| unreadable(&error))
    }

    pub(super) fn change<T>(
        &self,
        operation: impl FnOnce(&mut World) -> Result<T, Code>,
    ) -> Result<T, Code> {
        self.store.change(operation).map_err(|error| unreadable(&error))?
    }

    /// The effect of the faults on a call. An unreadable fault file is reported once, on standard error.
    pub(super) fn decide(&self, call: &fault::Call<'_>) -> Verdict {
        let mut faults = self.faults();
        let verdict = faults.decide(call);
        if let Some(problem) = faults.take_problem() {
            log::complain(&with_sources(&problem));
        }
        verdict
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the library to the loaded driver if it is unbound, and returns the stamp of a session.
    fn stamp(&self, world: &World) -> Result<DriverStamp, Code> {
        if !world.driver.loaded {
            return Err(Code::DriverNotLoaded);
        }
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        let bound = version.get_or_insert_with(|| world.driver.version.clone());
        let stamp = DriverStamp { version: bound.clone(), ..world.stamp() };
        world.link_status(&stamp)?;
        Ok(stamp)
    }
}

impl<T> Numbered<T> {
    const NONE: Self = Self { made: 0, objects: BTreeMap::new() };

    pub(super) fn add(&mut self, object: T) -> u64 {
        self.made = self.made.wrapping_add(1);
        self.objects.insert(self.made, object);
        self.made
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Result<&mut T, Code> {
        self.objects.get_mut(&number).ok_or(Code::InvalidArgument)
    }

    /// Ends all objects. Numbers continue, so that a waiting client never gets an object of the next session.
    fn end(&mut self) {
        self.objects.clear();
    }

    pub(super) fn remove(&mut self, number: u64) -> Result<(), Code> {
        let removed = self.objects.remove(&number).map(drop);
        removed.ok_or(Code::InvalidArgument)
    }
}

/// The machine, found and created at the first call that needs it; searched again while there is none, because a driver
/// may be loaded later. Without one there is no driver, and the reason is printed once.
pub(super) fn open() -> Result<Arc<Library>, Code> {
    let mut state = state();
    if let Some(library) = &state.library {
        return Ok(Arc::clone(library));
    }
    let store = find().map_err(|reason| {
        static SAID: AtomicBool = AtomicBool::new(false);
        if !SAID.swap(true, Ordering::Relaxed) {
            log::complain(&reason);
        }
        Code::DriverNotLoaded
    })?;
    let library = Arc::new(Library {
        faults: Mutex::new(Faults::open(store.directory())),
        store,
        version: Mutex::new(None),
    });
    state.library = Some(Arc::clone(&library));
    Ok(library)
}

/// Opens a session or joins the open one. A session that ended with a driver reload is replaced.
pub(super) fn begin(library: &Arc<Library>) -> Result<(), Code> {
    let world = library.read()?;
    let stamp = library.stamp(&world)?;
    let mut state = state();
    let same = state.session.as_ref().is_some_and(|session| session.stamp == stamp);
    if same {
        state.opened = state.opened.saturating_add(1);
        return Ok(());
    }
    state.sessions = state.sessions.wrapping_add(1);
    state.session = Some(Session {
        library: Arc::clone(library),
        stamp,
        generation: u16::try_from(state.sessions & GENERATION_MASK).unwrap_or(0),
    });
    state.opened = 1;
    state.end_objects();
    Ok(())
}

/// Closes the session with the last matching call. Works in any state of the driver.
pub(super) fn end() -> Result<(), Code> {
    let mut state = state();
    match state.opened {
        0 => return Err(Code::Uninitialized),
        1 => {
            state.session = None;
            state.end_objects();
        }
        _ => {}
    }
    state.opened -= 1;
    Ok(())
}

/// The open session.
pub(super) fn session() -> Result<Session, Code> {
    state().session.clone().ok_or(Code::Uninitialized)
}

/// Accesses the event sets; not while waiting.
pub(super) fn with_event_sets<T>(
    act: impl FnOnce(&mut Numbered<EventSet>) -> Result<T, Code>,
) -> Result<T, Code> {
    act(&mut state().sets)
}

/// Accesses the GPM samples.
pub(super) fn with_gpm_samples<T>(
    act: impl FnOnce(&mut Numbered<SampleBuffer>) -> Result<T, Code>,
) -> Result<T, Code> {
    act(&mut state().samples)
}

/// A client that loads the library repeatedly, as after driver updates, must not leak memory.
///
/// Also runs at process exit, when other threads may be inside a call: then it changes nothing.
extern "C" fn unload() {
    log::forget();
    if let Ok(mut state) = STATE.try_lock() {
        *state = State::NOTHING;
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find() -> Result<Store, String> {
    let environment =
        Environment { scenario: setting(SCENARIO_VARIABLE), state: setting(STATE_VARIABLE) };
    let path = own_path();
    let location =
        Location::find(path.as_deref(), &environment).map_err(|error| error.to_string())?;
    Store::open(&location).map_err(|error| with_sources(&error))
}

/// The file this library was loaded from.
fn own_path() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here: fn() -> Option<PathBuf> = own_path;
    // SAFETY: any address is valid, and the struct is a local.
    let found = unsafe { libc::dladdr(here as *const libc::c_void, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr succeeded, so the name is a string that lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

fn unreadable(error: &StoreError) -> Code {
    log::complain(&with_sources(error));
    Code::Unknown
}

/// An error with all its causes in one line.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
