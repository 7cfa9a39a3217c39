//! The gate through which every call passes, and what a body sees of the machine.
//!
//! ```text
//!  session? -> faults decide -> wait -> die? -> hang? -> answer? -> driver? -> body -> lose GPU? -> log -> die?
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::fault::{self, Abort, ActiveHang, Verdict};
use crate::latency::CallClass;
use crate::model::{
    Code, ComputeInstance, DestroyedMigDevice, Gpu, GpuInstance, MigDevice, Slot, World,
};

use super::handle::{CiHandle, DeviceHandle, GiHandle, Handle, Kind, Parts};
use super::library::{self, Library, Session};
use super::log::{self, Clock, Entry};
use super::pointer::Argument;

/// Poll interval of a hanging call.
const HANG_STEP: Duration = Duration::from_millis(10);

/// A call that passed the gate: a snapshot of the machine, and access to change it.
#[derive(Debug)]
pub(super) struct Call<'a> {
    session: &'a Session,
    world: &'a World,
    verdict: &'a Verdict,
}

/// A device of a client: a GPU, or a MIG device on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Device<'a> {
    pub(super) slot: Slot,
    pub(super) gpu: &'a Gpu,
    pub(super) mig: Option<MigDevice<'a>>,
}

/// Runs the body of a call within a session.
pub(super) fn gate(
    function: &'static str,
    arguments: &[&dyn Argument],
    body: impl FnOnce(&Call<'_>) -> Result<(), Code>,
) -> u32 {
    let entry = Entry::start(function, arguments);
    let session = match library::session() {
        Ok(session) => session,
        Err(code) => return entry.finish(code),
    };
    let library = Arc::clone(&session.library);
    pass(&entry, &library, |verdict, world| {
        world.link_status(&session.stamp)?;
        body(&Call { session: &session, world, verdict })
    })
}

/// Runs `nvmlInit`, which needs no session and opens one.
pub(super) fn gate_init(function: &'static str, arguments: &[&dyn Argument]) -> u32 {
    let entry = Entry::start(function, arguments);
    match library::open() {
        Ok(library) => pass(&entry, &library, |_, _| library::begin(&library)),
        Err(code) => entry.finish(code),
    }
}

/// Runs `nvmlShutdown`, which works in any state of the driver.
pub(super) fn gate_shutdown(function: &'static str) -> u32 {
    let entry = Entry::start(function, &[]);
    match library::session() {
        // Without a machine there is no latency and no fault, and the session ends anyway.
        Ok(session) if session.library.read().is_err() => {
            entry.finish(library::end().err().unwrap_or(Code::Success))
        }
        Ok(session) => pass(&entry, &session.library, |_, _| library::end()),
        Err(code) => entry.finish(code),
    }
}

fn pass(
    entry: &Entry<'_>,
    library: &Library,
    act: impl FnOnce(&Verdict, &World) -> Result<(), Code>,
) -> u32 {
    let mut world = match library.read() {
        Ok(world) => world,
        Err(code) => return entry.finish(code),
    };
    let slot = entry.arguments.iter().find_map(|argument| argument.gpu());
    let gpu = slot.and_then(|slot| world.gpus.get(slot));
    let verdict = library.decide(&fault::Call {
        function: entry.function,
        gpu: gpu.map(|gpu| (gpu.index, gpu.uuid.as_str())),
        now_ms: log::steady_ns() / 1_000_000,
    });
    let usual = world.latency.of(CallClass::of_function(entry.function));
    let time = slowed(usual, verdict.slow_factor).saturating_add(verdict.delay);
    sleep(time);
    if verdict.abort == Some(Abort::Before) {
        entry.note("ABORT_BEFORE");
        die();
    }
    if let Some(hang) = &verdict.hang {
        entry.note("HANG");
        wait_out(library, hang);
    }
    if !time.is_zero() || verdict.hang.is_some() {
        // The machine may have changed meanwhile.
        world = match library.read() {
            Ok(world) => world,
            Err(code) => return entry.finish(code),
        };
    }
    let code =
        verdict.answer.unwrap_or_else(|| act(&verdict, &world).err().unwrap_or(Code::Success));
    if let Some(slot) = slot.filter(|_| verdict.lose_gpu) {
        // A lost GPU stays lost.
        let _ = library.change(|world| world.lose_gpu(Slot(slot)));
    }
    if verdict.abort == Some(Abort::After) {
        entry.note("ABORT_AFTER");
        die();
    }
    entry.finish(code)
}

fn slowed(time: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// Sleeps without the standard library, whose threads have thread-local data that would survive an unload.
pub(super) fn sleep(time: Duration) {
    if time.is_zero() {
        return;
    }
    let mut rest = libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    loop {
        let wanted = rest;
        // SAFETY: both structs are locals that outlive the call.
        let done = unsafe { libc::nanosleep(&raw const wanted, &raw mut rest) };
        if done == 0 {
            return;
        }
    }
}

fn wait_out(library: &Library, hang: &ActiveHang) {
    while library.faults().still_hangs(hang) {
        sleep(HANG_STEP);
    }
}

/// Ends the process like `kill -9`: nothing is flushed or unwound.
fn die() -> ! {
    // SAFETY: has no arguments and always succeeds.
    let own = unsafe { libc::getpid() };
    // SAFETY: has no memory arguments; a process may always signal itself.
    unsafe { libc::kill(own, libc::SIGKILL) };
    loop {
        sleep(Duration::MAX);
    }
}

impl<'a> Entry<'a> {
    fn start(function: &'a str, arguments: &'a [&'a dyn Argument]) -> Self {
        Self { function, arguments, started: Clock::now() }
    }

    /// Logs an event within the call.
    fn note(&self, what: &str) {
        if log::is_on() {
            log::write(self, what);
        }
    }

    fn finish(&self, code: Code) -> u32 {
        self.note(code.name());
        code.code()
    }
}

impl Call<'_> {
    /// The machine at the start of the call.
    pub(super) fn world(&self) -> &World {
        self.world
    }

    /// The effect of the faults on this call.
    pub(super) fn verdict(&self) -> &Verdict {
        self.verdict
    }

    /// The current machine, if the session is still open and its driver still loaded.
    pub(super) fn look_again(&self) -> Result<Arc<World>, Code> {
        if library::session()?.generation != self.session.generation {
            return Err(Code::Uninitialized);
        }
        let world = self.session.library.read()?;
        world.link_status(&self.session.stamp)?;
        Ok(world)
    }

    /// The state directory of the machine.
    pub(super) fn state_directory(&self) -> &Path {
        self.session.library.state_directory()
    }

    pub(super) fn change<T>(
        &self,
        operation: impl FnOnce(&mut World) -> Result<T, Code>,
    ) -> Result<T, Code> {
        self.session.library.change(operation)
    }

    /// The slots of all GPUs.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        (0..self.world.gpus.len()).map(Slot)
    }

    /// The GPU or MIG device of a handle, if it still exists and is on the bus.
    pub(super) fn device(&self, handle: DeviceHandle) -> Result<Device<'_>, Code> {
        let (parts, gpu) = self.find(handle)?;
        let mig = match parts.kind {
            Kind::Gpu => None,
            Kind::Mig => {
                let found = gpu.ci_by_serial(parts.serial);
                let (gi, ci) = found.ok_or(Code::InvalidArgument)?;
                Some(MigDevice { gi, ci })
            }
            Kind::DestroyedMig
            | Kind::GpuInstance
            | Kind::ComputeInstance
            | Kind::EventSet
            | Kind::GpmSample => {
                return Err(Code::InvalidArgument);
            }
        };
        Ok(Device { slot: Slot(parts.gpu), gpu, mig })
    }

    /// The GPU of a handle that must not be a MIG device.
    pub(super) fn gpu(&self, handle: DeviceHandle) -> Result<(Slot, &Gpu), Code> {
        let device = self.device(handle)?;
        match device.mig {
            None => Ok((device.slot, device.gpu)),
            Some(_) => Err(Code::NotSupported),
        }
    }

    /// A MIG device, with its GPU.
    pub(super) fn mig_device(&self, handle: DeviceHandle) -> Result<(Slot, MigDevice<'_>), Code> {
        let device = self.device(handle)?;
        let mig = device.mig.ok_or(Code::InvalidArgument)?;
        Ok((device.slot, mig))
    }

    /// A destroyed MIG device, by a handle that only the stale-handle fault returns.
    pub(super) fn destroyed(&self, handle: DeviceHandle) -> Option<&DestroyedMigDevice> {
        let (parts, gpu) = self.find(handle).ok()?;
        let destroyed = &gpu.mig.as_ref()?.destroyed;
        destroyed
            .iter()
            .find(|device| parts.kind == Kind::DestroyedMig && device.ci_serial == parts.serial)
    }

    pub(super) fn gi(&self, handle: GiHandle) -> Result<(Slot, &Gpu, &GpuInstance), Code> {
        let (parts, gpu) = self.find(handle)?;
        let found = gpu.gi_by_serial(parts.serial);
        let gi = found.filter(|_| parts.kind == Kind::GpuInstance);
        Ok((Slot(parts.gpu), gpu, gi.ok_or(Code::InvalidArgument)?))
    }

    pub(super) fn ci(
        &self,
        handle: CiHandle,
    ) -> Result<(Slot, &GpuInstance, &ComputeInstance), Code> {
        let (parts, gpu) = self.find(handle)?;
        let found = gpu.ci_by_serial(parts.serial);
        let pair = found.filter(|_| parts.kind == Kind::ComputeInstance);
        let (gi, ci) = pair.ok_or(Code::InvalidArgument)?;
        Ok((Slot(parts.gpu), gi, ci))
    }

    pub(super) fn gpu_handle(&self, slot: Slot) -> DeviceHandle {
        self.handle(Kind::Gpu, slot, 0)
    }

    /// The handle of a MIG device, by the serial number of its compute instance.
    pub(super) fn mig_handle(&self, slot: Slot, serial: u64) -> DeviceHandle {
        self.handle(Kind::Mig, slot, serial)
    }

    pub(super) fn handle<H: Handle>(&self, kind: Kind, slot: Slot, serial: u64) -> H {
        H::new(Parts { kind, generation: self.session.generation, gpu: slot.0, serial })
    }

    /// Number of the object of a handle: of an event set or a GPM sample.
    pub(super) fn number<H: Handle>(&self, kind: Kind, handle: H) -> Result<u64, Code> {
        let parts = handle.parts(self.session.generation)?;
        let number = (parts.kind == kind).then_some(parts.serial);
        number.ok_or(Code::InvalidArgument)
    }

    fn find<H: Handle>(&self, handle: H) -> Result<(Parts, &Gpu), Code> {
        let parts = handle.parts(self.session.generation)?;
        if !parts.kind.has_gpu() {
            return Err(Code::InvalidArgument);
        }
        let gpu = self.world.gpu(Slot(parts.gpu))?;
        gpu.present()?;
        Ok((parts, gpu))
    }
}
