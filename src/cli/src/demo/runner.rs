//! The whole demo: start, display, change the hardware, and check that the aggregator reports it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use octavo_client::ServerSettings;
use octavo_client::{Client, RequestPath};
use octavo_demo::scenario::Scenario;
use octavo_demo::{
    ChildProcesses, DemoAction, DemoError, DemoEvent, DemoMachine, Programs, event_cycle,
};
use octavo_fleet::api::{Event, NodeRow, TypeList};
use octavo_settings::server_url::ServerUrl;
use tokio::process::Command;
use tokio::time::{Instant, interval, sleep_until};

use super::check::FleetCheck;
use crate::output::{self, OutputState};
use crate::settings::Colors;
use crate::settings::demo::DemoSettings;
use crate::style::Style;
use crate::text::printable;
use crate::watch::event_feed::{EventFeed, say_lost};
use crate::watch::{node_diff, now};
use crate::{CliError, fleet};

/// Maximum time of a start, sufficient on a slow machine.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Interval between two changes.
const EVENT_INTERVAL: Duration = Duration::from_secs(3);

/// End of a demo that did not fail.
#[derive(Debug)]
pub(super) enum DemoOutcome {
    /// The user stopped it.
    Stopped,
    /// Standard output was closed.
    OutputClosed,
    /// Its time is over and everything was reported; with the summary.
    Complete(String),
}

/// Inputs of the demo.
#[derive(Debug)]
pub(super) struct DemoRunner<'a> {
    pub(super) settings: &'a DemoSettings,
    pub(super) colors: Colors,
    pub(super) programs: &'a Programs,
    /// This program. Found once, because its path changes if it is rebuilt meanwhile.
    pub(super) own: &'a Path,
    pub(super) directory: &'a Path,
}

/// The last reported state of the fleet, and the expected one.
#[derive(Debug)]
struct FleetMonitor {
    client: Client,
    check: FleetCheck,
    known: BTreeMap<String, NodeRow>,
    colors: Colors,
}

impl DemoRunner<'_> {
    /// Runs until its time is over, or indefinitely without a limit.
    pub(super) async fn run(
        &self,
        scenarios: &[Scenario],
        children: &mut ChildProcesses,
    ) -> Result<DemoOutcome, CliError> {
        self.say("starting the aggregator")?;
        let (agents, people) = self.aggregator(children).await?;
        let mut machines = Vec::new();
        for scenario in scenarios {
            self.say(&format!("starting the agent of {}: {}", scenario.name, scenario.title()))?;
            let machine = DemoMachine::make(scenario, self.programs, self.directory).await?;
            children.start(&format!("the agent of {}", scenario.name), &machine.agent(&agents))?;
            machines.push(machine);
        }
        let url: ServerUrl =
            people.parse().map_err(|_| DemoError::NoAddress { log: people.clone() })?;
        let client = Client::connect(&ServerSettings::plaintext(url, START_TIMEOUT)).await?;
        let mut audience = FleetMonitor {
            client: client.clone(),
            check: FleetCheck::new(scenarios),
            known: BTreeMap::new(),
            colors: self.colors,
        };
        let mut feed: EventFeed = EventFeed::new(client);
        let mut opened = false;
        let start = Instant::now();
        let mut end = start + START_TIMEOUT;
        let mut story = event_cycle(machines.iter().map(DemoMachine::name)).into_iter().cycle();
        let mut pace = interval(EVENT_INTERVAL);
        loop {
            tokio::select! {
                news = feed.next(say_lost) => {
                    let _ = news?;
                    if audience.update().await? == OutputState::Closed {
                        return Ok(DemoOutcome::OutputClosed);
                    }
                }
                died = children.died() => return Err(died.into()),
                () = sleep_until(end), if !opened || self.settings.duration().is_some() => {
                    return audience.verdict(machines.len());
                }
                _ = pace.tick(), if opened => {
                    if let Some(act) = story.next() {
                        self.apply_event(&act, &machines).await?;
                    }
                }
            }
            if !opened && audience.check.all_seen() {
                opened = true;
                end = Instant::now() + self.settings.duration().unwrap_or(START_TIMEOUT);
                pace.reset();
                self.print_welcome(&people, machines.len())?;
                for machine in machines.iter().filter(|machine| machine.waits_for_driver()) {
                    self.happens(machine.name(), "the driver is installed")?;
                    machine.install_driver()?;
                }
            }
        }
    }

    /// Starts the aggregator. Returns its addresses for agents and for users.
    async fn aggregator(
        &self,
        children: &mut ChildProcesses,
    ) -> Result<(String, String), CliError> {
        let mut command = Command::new(&self.programs.aggregator);
        command
            .args(["--plaintext", "--grpc-listen=127.0.0.1:0"])
            .arg(format!("--http-listen=127.0.0.1:{}", self.settings.port));
        let log = children.start("the aggregator", &command)?;
        let addresses = async {
            let agents = log.wait_for("listening for agents on ").await;
            let people = log.wait_for("listening for HTTP clients on ").await;
            (address(&agents), address(&people))
        };
        let silent = sleep_until(Instant::now() + START_TIMEOUT);
        tokio::select! {
            addresses = addresses => Ok(addresses),
            died = children.died() => Err(died.into()),
            () = silent => Err(DemoError::NoAddress { log: log.text() }.into()),
        }
    }

    async fn apply_event(
        &self,
        act: &DemoEvent,
        machines: &[DemoMachine<'_>],
    ) -> Result<(), CliError> {
        self.happens(&act.machine, &act.says)?;
        let machine = machines.iter().find(|machine| machine.name() == act.machine);
        let Some(machine) = machine else {
            return Ok(());
        };
        let done = match &act.deed {
            DemoAction::Simulate(arguments) => machine.simulate(arguments).await,
            DemoAction::Partition(arguments) => match machine.simulate(arguments).await {
                Ok(()) => machine.show().await,
                refused => refused,
            },
            DemoAction::Choose(layout) => machine.choose(self.own, layout).await,
        };
        if let Err(message) = done {
            output::note(&format!("note: this event failed: {}", printable(&message)));
        }
        Ok(())
    }

    fn happens(&self, machine: &str, what: &str) -> Result<(), CliError> {
        let text = format!("{}  {machine}: {what}", time_of_day());
        line(&Style::Strong.paint(&text, self.colors))
    }

    fn say(&self, text: &str) -> Result<(), CliError> {
        line(&format!("{} {text}", Style::Strong.paint("==>", self.colors)))
    }

    fn print_welcome(&self, people: &str, machines: usize) -> Result<(), CliError> {
        self.say(&format!("all {machines} machines are connected. Web pages: {people}/"))?;
        let set = format!("OCTAVO_SERVER={people} {}", self.own.display());
        self.say("try these commands in another terminal:")?;
        for command in ["nodes", "types", "node hgx-a100", "top"] {
            line(&format!("      {set} {command}"))?;
        }
        self.say("events follow; Ctrl-C stops the demo")
    }
}

impl FleetMonitor {
    /// Requests the fleet's state, prints the changes and checks it.
    async fn update(&mut self) -> Result<OutputState, CliError> {
        let rows = fleet::all_nodes(&self.client).await?;
        self.check.nodes(&rows);
        if !self.check.all_counted() {
            let types: TypeList = self.client.get(&RequestPath::new("/api/v1/types")).await?;
            self.check.types(&types.items);
        }
        for node in rows {
            let before = self.known.insert(node.name.clone(), node.clone());
            let event = Event::Node { node };
            if let Some(words) = node_diff::words(before.as_ref(), &event, self.colors)
                && output::out(&format!("{}    {words}\n", time_of_day()))? == OutputState::Closed
            {
                return Ok(OutputState::Closed);
            }
        }
        Ok(OutputState::Open)
    }

    fn verdict(&self, machines: usize) -> Result<DemoOutcome, CliError> {
        let missing = self.check.missing();
        if missing.is_empty() {
            let summary = self.check.summary();
            return Ok(DemoOutcome::Complete(format!(
                "==> all {machines} machines were discovered, and {summary}"
            )));
        }
        Err(DemoError::FleetMismatch(missing).into())
    }
}

/// Returns the address at the start of a log message.
fn address(message: &str) -> String {
    let address = message.split_whitespace().next().unwrap_or_default();
    format!("http://{address}")
}

/// Prints a line. A closed output must not end the demo before the processes are stopped in order; the next update
/// detects it.
fn line(text: &str) -> Result<(), CliError> {
    output::out(&format!("{text}\n")).map(|_| ())
}

/// Returns the time of day, in UTC.
fn time_of_day() -> String {
    let now = now();
    now.split_once('T').map_or_else(|| now.clone(), |(_, time)| time.to_owned())
}
