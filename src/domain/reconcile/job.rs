//! What a transaction is asked for, what it asks for, and what it is told.

use std::sync::Arc;
use std::time::Duration;

use super::ending::Ending;
use crate::domain::call::{Call, Done, Failure};
use crate::domain::holder::Holder;
use crate::domain::inventory::{Device, Inventory, Process};
use crate::domain::layout::{DeviceTarget, MigTarget};
use crate::domain::plan::Policy;

/// What is to be done to a device.
#[derive(Debug, Clone)]
pub struct Job {
    /// The node as it was read just now.
    pub inventory: Arc<Inventory>,
    /// What the device shall have.
    pub target: DeviceTarget,
    /// What it had before anything was done to it, each instance in its place; `None` where nobody could tell.
    pub previous: Option<MigTarget>,
    /// Whether somebody began with it already and was killed.
    pub resumed: bool,
    /// Who uses it, beside the processes that the inventory names.
    pub holders: Vec<Holder>,
    /// What may be done.
    pub policy: Policy,
    /// How patiently.
    pub limits: Limits,
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long a driver may say "in use" of what nobody is seen to use. Source: a few tenths of a second after a process
    /// ended, measured on an A30 (FAR scheduler, JPDC 2025).
    pub in_use: Duration,
    /// How long the whole may take; going back may take as long again.
    pub whole: Duration,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Find out who uses the device and its partitions; answered by [`Answer::Looked`].
    Look,
    /// Make this call; answered by [`Answer::Called`].
    Call(Call),
    /// Wait; answered by [`Answer::Waited`].
    Wait(Duration),
    /// Read the device; answered by [`Answer::Read`].
    Read,
    /// Nothing more.
    End(Ending),
}

/// What came of it.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Nothing was asked for yet.
    Begin,
    /// Of [`Action::Look`]: who, or why nobody can tell.
    Looked(Result<Users, String>),
    /// Of [`Action::Call`].
    Called(Result<Done, Failure>),
    /// Of [`Action::Wait`].
    Waited,
    /// Of [`Action::Read`].
    Read(Result<Box<Device>, Failure>),
}

/// Who uses a device, told just now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Users {
    /// Processes with a context, by the driver.
    pub processes: Vec<Process>,
    /// Everybody else.
    pub holders: Vec<Holder>,
}

/// How far it is, for people who watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, in words.
    pub doing: String,
    /// Steps of the present plan that are done.
    pub done: usize,
    /// Steps that the present plan has.
    pub steps: usize,
    /// Whether it is on its way back.
    pub back: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_use: Duration::from_secs(3),
            whole: Duration::from_secs(30),
        }
    }
}
