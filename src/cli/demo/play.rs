//! The whole demo: start, display, change the hardware, and check that the aggregator reports it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::{Timestamp, Unit};
use tokio::process::Command;
use tokio::time::{Instant, interval, sleep_until};

use super::DemoError;
use super::check::Check;
use super::children::Children;
use super::machine::Machine;
use super::programs::Programs;
use super::scenario::Scenario;
use super::story::{self, Act, Deed};
use crate::cli::CliError;
use crate::cli::client::{Client, Target};
use crate::cli::fleet;
use crate::cli::paint::Ink;
use crate::cli::print::{self, Reader};
use crate::cli::text::printable;
use crate::cli::watch::change;
use crate::cli::watch::feed::{Feed, say_lost};
use crate::config::octavo::Colors;
use crate::config::octavo::demo::DemoSettings;
use crate::config::octavo::server::{ServerSettings, ServerUrl};
use crate::wire::api::{Event, NodeRow, TypeList};

/// Maximum time of a start, sufficient on a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Interval between two changes.
const PACE: Duration = Duration::from_secs(3);

/// End of a demo that did not fail.
#[derive(Debug)]
pub(super) enum Ending {
    /// The user stopped it.
    Stopped,
    /// Standard output was closed.
    Unread,
    /// Its time is over and everything was reported; with the summary.
    Complete(String),
}

/// Inputs of the demo.
#[derive(Debug)]
pub(super) struct Play<'a> {
    pub(super) settings: &'a DemoSettings,
    pub(super) colors: Colors,
    pub(super) programs: &'a Programs,
    pub(super) folder: &'a Path,
}

/// The last reported state of the fleet, and the expected one.
#[derive(Debug)]
struct Audience {
    client: Client,
    check: Check,
    known: BTreeMap<String, NodeRow>,
    colors: Colors,
}

impl Play<'_> {
    /// Runs until its time is over, or indefinitely without a limit.
    pub(super) async fn run(
        &self,
        scenarios: &[Scenario],
        children: &mut Children,
    ) -> Result<Ending, CliError> {
        self.say("starting the aggregator")?;
        let (agents, people) = self.aggregator(children).await?;
        let mut machines = Vec::new();
        for scenario in scenarios {
            self.say(&format!(
                "starting the agent of {}: {}",
                scenario.name,
                scenario.title()
            ))?;
            let machine = Machine::make(scenario, self.programs, self.folder).await?;
            children.start(
                &format!("the agent of {}", scenario.name),
                &machine.agent(&agents),
            )?;
            machines.push(machine);
        }
        let url: ServerUrl = people.parse().map_err(|_| DemoError::NoAddress {
            log: people.clone(),
        })?;
        let client = Client::new(&ServerSettings::plaintext(url, PATIENCE))?;
        let mut audience = Audience {
            client: client.clone(),
            check: Check::new(scenarios),
            known: BTreeMap::new(),
            colors: self.colors,
        };
        let mut feed: Feed = Feed::new(client);
        let mut opened = false;
        let start = Instant::now();
        let mut end = start + PATIENCE;
        let mut story = story::round(machines.iter().map(Machine::name))
            .into_iter()
            .cycle();
        let mut pace = interval(PACE);
        loop {
            tokio::select! {
                news = feed.next(say_lost) => {
                    let _ = news?;
                    if audience.look().await? == Reader::Gone {
                        return Ok(Ending::Unread);
                    }
                }
                died = children.died() => return Err(died.into()),
                () = sleep_until(end), if !opened || self.settings.lasts().is_some() => {
                    return audience.verdict(machines.len());
                }
                _ = pace.tick(), if opened => {
                    if let Some(act) = story.next() {
                        self.happen(&act, &machines).await?;
                    }
                }
            }
            if !opened && audience.check.all_seen() {
                opened = true;
                end = Instant::now() + self.settings.lasts().unwrap_or(PATIENCE);
                pace.reset();
                self.invite(&people, machines.len())?;
                for machine in machines.iter().filter(|machine| machine.waits_for_driver()) {
                    self.happens(machine.name(), "the driver is installed")?;
                    machine.install_driver()?;
                }
            }
        }
    }

    /// Starts the aggregator. Returns its addresses for agents and for users.
    async fn aggregator(&self, children: &mut Children) -> Result<(String, String), CliError> {
        let mut command = Command::new(&self.programs.aggregator);
        command
            .args(["--plaintext", "--grpc-listen=127.0.0.1:0"])
            .arg(format!("--http-listen=127.0.0.1:{}", self.settings.port()));
        let log = children.start("the aggregator", &command)?;
        let said = async {
            let agents = log.says("listening for agents on ").await;
            let people = log.says("listening for people and programs on ").await;
            (address(&agents), address(&people))
        };
        let silent = sleep_until(Instant::now() + PATIENCE);
        tokio::select! {
            said = said => Ok(said),
            died = children.died() => Err(died.into()),
            () = silent => Err(DemoError::NoAddress { log: log.text() }.into()),
        }
    }

    async fn happen(&self, act: &Act, machines: &[Machine<'_>]) -> Result<(), CliError> {
        self.happens(&act.machine, &act.says)?;
        let machine = machines
            .iter()
            .find(|machine| machine.name() == act.machine);
        let Some(machine) = machine else {
            return Ok(());
        };
        let done = match &act.deed {
            Deed::Simulate(arguments) => machine.simulate(arguments).await,
            Deed::Divide(arguments) => match machine.simulate(arguments).await {
                Ok(()) => machine.show().await,
                refused => refused,
            },
            Deed::Choose(layout) => machine.choose(self.settings.own(), layout).await,
        };
        if let Err(said) = done {
            print::note(&format!("note: it did not: {}", printable(&said)));
        }
        Ok(())
    }

    fn happens(&self, machine: &str, what: &str) -> Result<(), CliError> {
        let text = format!("{}  {machine}: {what}", now());
        line(&Ink::Strong.paint(&text, self.colors))
    }

    fn say(&self, text: &str) -> Result<(), CliError> {
        line(&format!("{} {text}", Ink::Strong.paint("==>", self.colors)))
    }

    fn invite(&self, people: &str, machines: usize) -> Result<(), CliError> {
        self.say(&format!(
            "all {machines} machines are here. The fleet's page: {people}/"
        ))?;
        let set = format!("OCTAVO_SERVER={people} {}", self.settings.own().display());
        self.say("try in another terminal:")?;
        for command in ["nodes", "types", "node hgx-a100", "top"] {
            line(&format!("      {set} {command}"))?;
        }
        self.say("what happens now; Ctrl-C ends all of it")
    }
}

impl Audience {
    /// Requests the fleet's state, prints the changes and checks it.
    async fn look(&mut self) -> Result<Reader, CliError> {
        let rows = fleet::everything(&self.client).await?;
        self.check.nodes(&rows);
        if !self.check.all_counted() {
            let types: TypeList = self.client.get(&Target::new("/api/v1/types")).await?;
            self.check.types(&types.items);
        }
        for node in rows {
            let before = self.known.insert(node.name.clone(), node.clone());
            let event = Event::Node { node };
            if let Some(words) = change::words(before.as_ref(), &event, self.colors)
                && print::out(&format!("{}    {words}\n", now()))? == Reader::Gone
            {
                return Ok(Reader::Gone);
            }
        }
        Ok(Reader::There)
    }

    fn verdict(&self, machines: usize) -> Result<Ending, CliError> {
        let missing = self.check.missing();
        if missing.is_empty() {
            let summary = self.check.summary();
            return Ok(Ending::Complete(format!(
                "==> all {machines} machines were seen, and {summary}"
            )));
        }
        Err(DemoError::Unseen(missing).into())
    }
}

/// Returns the address at the start of a log message.
fn address(said: &str) -> String {
    let address = said.split_whitespace().next().unwrap_or_default();
    format!("http://{address}")
}

/// Prints a line. A closed output must not end the demo before the processes are stopped in order; the next update
/// detects it.
fn line(text: &str) -> Result<(), CliError> {
    print::out(&format!("{text}\n")).map(|_| ())
}

/// Returns the time of day, in UTC.
fn now() -> String {
    let now = Timestamp::now();
    let now = now.round(Unit::Second).unwrap_or(now).to_string();
    now.split_once('T')
        .map_or_else(|| now.clone(), |(_, time)| time.to_owned())
}
