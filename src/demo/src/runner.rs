//! The whole demo: start, display, change the hardware, and check that the aggregator reports it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use octavo_client::{Client, EventFeed, RequestPath, ServerSettings};
use octavo_fleet::api::{Event, NodeRow, TypeList};
use octavo_fleet::availability::AvailabilityList;
use octavo_fleet::hardware_profile::document::ProfileList;
use octavo_fleet::matching::{MatchAnswer, MatchRequest};
use octavo_fleet::usage::UsageList;
use octavo_settings::server_url::ServerUrl;
use octavo_terminal::output::{self, OutputState};
use octavo_terminal::style::{Colors, Style};
use octavo_terminal::text::printable;
use octavo_toolkit::error::chain;
use tokio::process::Command;
use tokio::time::{Instant, interval, sleep_until};

use crate::check::{ClusterCounts, FleetCheck};
use crate::cluster::SimulatedCluster;
use crate::scenario::Scenario;
use crate::tour::Tour;
use crate::{
    ChildProcesses, DemoAction, DemoError, DemoEvent, DemoMachine, DemoOutcome, DemoSite, LAYOUTS,
    PRICES, Programs, RunningMachines, Servers, Workloads, event_cycle,
};

/// Maximum time of a start, sufficient on a slow machine.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Interval between two changes.
const EVENT_INTERVAL: Duration = Duration::from_secs(3);

/// Pending pods for types of the built-in fleet, and types of it with a price. More may be shown.
const EXPECTED_PENDING: usize = 3;
const EXPECTED_PRICES: usize = 8;
/// Containers of the built-in fleet whose utilization the driver reports. Some events end one.
const EXPECTED_BUSY: usize = 46;

/// Formats a change of a node as a line; `None` if there is nothing to show.
pub type DescribeChange = fn(Option<&NodeRow>, &Event, Colors) -> Option<String>;

/// Options of the demo.
#[derive(Debug, Clone, Copy)]
pub struct DemoOptions {
    /// Port of the aggregator; 0 for any free port.
    pub port: u16,
    /// Runs the tour instead of showing changes.
    pub tour: bool,
    /// True if the machines are the built-in ones.
    pub built_in: bool,
    /// Duration; `None` until it is stopped.
    pub duration: Option<Duration>,
}

/// Inputs of the demo.
#[derive(Debug)]
pub struct DemoRunner<'a> {
    /// Options.
    pub options: DemoOptions,
    /// Colors of the output.
    pub colors: Colors,
    /// Formats changes.
    pub describe: DescribeChange,
    /// The programs.
    pub programs: &'a Programs,
    /// This program. Found once, because its path changes if it is rebuilt meanwhile.
    pub own: &'a Path,
    /// Directory of all files.
    pub directory: &'a Path,
}

/// The last reported state of the fleet, and the expected one.
#[derive(Debug)]
struct FleetMonitor {
    client: Client,
    check: FleetCheck,
    known: BTreeMap<String, NodeRow>,
    colors: Colors,
    describe: DescribeChange,
    /// True if changes are not printed.
    quiet: bool,
}

/// The addresses of the aggregator.
#[derive(Debug)]
struct Addresses {
    agents: String,
    aggregator_url: String,
}

/// The processes of the demo.
#[derive(Debug)]
struct DemoProcesses {
    aggregator: ChildProcesses,
    agents: ChildProcesses,
}

impl DemoProcesses {
    async fn new() -> Self {
        Self { aggregator: ChildProcesses::new().await, agents: ChildProcesses::new().await }
    }

    /// Returns once a process has exited by itself.
    async fn died(&mut self) -> DemoError {
        tokio::select! {
            died = self.aggregator.died() => died,
            died = self.agents.died() => died,
        }
    }

    /// Stops the agents and then the aggregator, which they report to until they exit.
    async fn stop(&mut self) {
        self.agents.stop().await;
        self.aggregator.stop().await;
    }
}

impl DemoRunner<'_> {
    /// Runs until it is stopped or its time is over, and ends every process and connection.
    pub async fn run(
        &self,
        scenarios: &[Scenario],
        stop: impl Future<Output = ()>,
    ) -> Result<DemoOutcome, DemoError> {
        let mut servers = Servers::default();
        let mut processes = DemoProcesses::new().await;
        let outcome = tokio::select! {
            outcome = self.operate(scenarios, &mut servers, &mut processes) => outcome,
            () = stop => Ok(DemoOutcome::Stopped),
        };
        // Agents and aggregator use the API server and the kubelets until they exit. A second Ctrl-C is not needed: a
        // process that does not exit on request is killed.
        processes.stop().await;
        servers.stop().await;
        outcome
    }

    /// Starts everything and runs until its time is over, or indefinitely without a limit.
    async fn operate(
        &self,
        scenarios: &[Scenario],
        servers: &mut Servers,
        processes: &mut DemoProcesses,
    ) -> Result<DemoOutcome, DemoError> {
        self.log("Kubernetes, kubelets, drivers and hardware are simulated; aggregator and agents are real")?;
        let cluster = SimulatedCluster::start(servers).await.map_err(DemoError::Cluster)?;
        let kubeconfig = self.directory.join("kubeconfig");
        cluster.write_kubeconfig(&kubeconfig).map_err(DemoError::Folder)?;
        let workloads = Workloads::built_in()?;
        let names: Vec<&str> = scenarios.iter().map(|one| one.name.as_str()).collect();
        workloads.create(cluster.objects(), &names)?;
        self.log("starting the aggregator")?;
        let addresses = self.aggregator(&mut processes.aggregator, &kubeconfig).await?;
        let site = DemoSite {
            programs: self.programs,
            directory: self.directory,
            objects: cluster.objects(),
            kubeconfig: &kubeconfig,
            workloads: &workloads,
        };
        let agents = (addresses.agents.as_str(), &mut processes.agents);
        let machines = self.machines(scenarios, &site, servers, agents).await?;
        let mut fleet = RunningMachines::new(&machines, &site);
        let aggregator_url = addresses.aggregator_url.as_str();
        let url: ServerUrl = aggregator_url
            .parse()
            .map_err(|_| DemoError::NoAddress { log: aggregator_url.to_owned() })?;
        let client = Client::connect(&ServerSettings::plaintext(url, START_TIMEOUT)).await?;
        // Other machines may have none of the types that pods wait for or that have a price.
        let mut expected = ClusterCounts {
            profiles: Workloads::profiles(cluster.objects()),
            ..ClusterCounts::default()
        };
        if self.options.built_in {
            expected = ClusterCounts {
                pending: EXPECTED_PENDING,
                prices: EXPECTED_PRICES,
                busy: EXPECTED_BUSY,
                ..expected
            };
        }
        let monitor = FleetMonitor {
            client: client.clone(),
            check: FleetCheck::new(scenarios, expected),
            known: BTreeMap::new(),
            colors: self.colors,
            describe: self.describe,
            quiet: self.options.tour,
        };
        tokio::select! {
            ended = self.show(monitor, EventFeed::new(client), (&mut fleet, aggregator_url)) => ended,
            died = processes.died() => Err(died),
            failed = servers.failed() => Err(DemoError::Server(failed)),
        }
    }

    /// Creates the machines and starts their agents.
    async fn machines<'a>(
        &self,
        scenarios: &'a [Scenario],
        site: &'a DemoSite<'a>,
        servers: &mut Servers,
        (aggregator, children): (&str, &mut ChildProcesses),
    ) -> Result<Vec<DemoMachine<'a>>, DemoError> {
        let mut machines = Vec::new();
        for scenario in scenarios {
            self.log(&format!("starting the agent of {}: {}", scenario.name, scenario.title()))?;
            let machine = DemoMachine::make(scenario, site, servers).await?;
            let name = format!("the agent of {}", scenario.name);
            children.start(&name, &machine.agent(aggregator))?;
            machines.push(machine);
        }
        Ok(machines)
    }

    /// Shows events, or the tour, until the time is over.
    async fn show(
        &self,
        mut monitor: FleetMonitor,
        mut feed: EventFeed,
        (fleet, aggregator_url): (&mut RunningMachines<'_, '_>, &str),
    ) -> Result<DemoOutcome, DemoError> {
        let machines = fleet.machines;
        let (mut opened, mut ready) = (false, false);
        let mut end = Instant::now() + START_TIMEOUT;
        let mut events = event_cycle(machines.iter().map(DemoMachine::name)).into_iter().cycle();
        let mut pace = interval(EVENT_INTERVAL);
        let tour = Tour {
            own: self.own,
            aggregator_url,
            kubeconfig: fleet.site.kubeconfig,
            colors: self.colors,
        };
        let tour = tour.run();
        tokio::pin!(tour);
        loop {
            let waits_for_tour = self.options.tour && !ready;
            let has_end = !opened || waits_for_tour || self.options.duration.is_some();
            tokio::select! {
                received = feed.next(note_lost) => {
                    let _ = received?;
                    match monitor.update().await {
                        Ok(OutputState::Open) => {}
                        Ok(OutputState::Closed) => return Ok(DemoOutcome::OutputClosed),
                        // Requested again at the next event.
                        Err(DemoError::Client(error)) => note_lost(&chain(&error)),
                        Err(error) => return Err(error),
                    }
                }
                update = fleet.next() => fleet.apply(update).await,
                () = sleep_until(end), if has_end => return monitor.verdict(machines.len()),
                ended = &mut tour, if ready && self.options.tour => return ended,
                _ = pace.tick(), if opened => {
                    if let Some(event) = events.next() {
                        self.apply_event(&event, fleet).await?;
                    }
                }
            }
            ready |= opened && monitor.check.missing().is_empty();
            if !opened && monitor.check.all_discovered() {
                opened = true;
                end = Instant::now() + self.options.duration.unwrap_or(START_TIMEOUT);
                pace.reset();
                self.open(machines, aggregator_url, fleet.site.kubeconfig)?;
            }
        }
    }

    /// Prints the addresses, and installs the drivers that are installed late.
    fn open(
        &self,
        machines: &[DemoMachine<'_>],
        aggregator_url: &str,
        kubeconfig: &Path,
    ) -> Result<(), DemoError> {
        self.print_welcome(aggregator_url, machines.len(), kubeconfig)?;
        for machine in machines.iter().filter(|machine| machine.waits_for_driver()) {
            self.print_event(machine.name(), "the driver is installed")?;
            machine.install_driver()?;
        }
        Ok(())
    }

    /// Starts the aggregator. Returns its addresses for agents and for users.
    async fn aggregator(
        &self,
        children: &mut ChildProcesses,
        kubeconfig: &Path,
    ) -> Result<Addresses, DemoError> {
        let prices = self.directory.join("prices.yaml");
        let layouts = self.directory.join("layouts.yaml");
        for (path, text) in [(&prices, PRICES), (&layouts, LAYOUTS)] {
            fs::write(path, text)
                .map_err(|source| DemoError::File { path: path.clone(), source })?;
        }
        let mut command = Command::new(&self.programs.aggregator);
        command
            .args(["--plaintext", "--grpc-listen=127.0.0.1:0", "--cluster-name=demo"])
            .arg(format!("--http-listen=127.0.0.1:{}", self.options.port))
            .args(["--follow-cluster", "--create-profiles", "--policies"])
            .args(["--lease-namespace=platform", "--kubeconfig"])
            .arg(kubeconfig)
            .arg("--price-book")
            .arg(&prices)
            .arg("--layouts")
            .arg(&layouts);
        let log = children.start("the aggregator", &command)?;
        let addresses = async {
            let agents = log.wait_for("listening for agents on ").await;
            let aggregator_url = log.wait_for("listening for HTTP clients on ").await;
            Addresses { agents: address(&agents), aggregator_url: address(&aggregator_url) }
        };
        let silent = sleep_until(Instant::now() + START_TIMEOUT);
        tokio::select! {
            addresses = addresses => Ok(addresses),
            died = children.died() => Err(died),
            () = silent => Err(DemoError::NoAddress { log: log.text() }),
        }
    }

    async fn apply_event(
        &self,
        event: &DemoEvent,
        fleet: &RunningMachines<'_, '_>,
    ) -> Result<(), DemoError> {
        self.print_event(&event.machine, &event.description)?;
        let machine = fleet.machines.iter().find(|machine| machine.name() == event.machine);
        let Some(machine) = machine else {
            return Ok(());
        };
        let done = match &event.action {
            DemoAction::Simulate(arguments) => machine.simulate(arguments).await.map(|_| ()),
            DemoAction::Partition(arguments) => match machine.simulate(arguments).await {
                Ok(_) => machine.show_other_devices().await,
                Err(refused) => Err(refused),
            },
            DemoAction::SelectLayout(layout) => machine.choose(layout),
            DemoAction::Start(pod) => fleet.site.workloads.start(fleet.site.objects, pod),
            DemoAction::Stop(pod) => Workloads::stop(fleet.site.objects, pod),
        };
        if let Err(message) = done {
            output::note(&format!("note: this event failed: {}", printable(&message)));
        }
        Ok(())
    }

    /// Prints an event, except during a tour.
    fn print_event(&self, machine: &str, what: &str) -> Result<(), DemoError> {
        if self.options.tour {
            return Ok(());
        }
        let text = format!("{}  {machine}: {what}", time_of_day());
        line(&Style::Strong.paint(&text, self.colors))
    }

    fn log(&self, text: &str) -> Result<(), DemoError> {
        line(&format!("{} {text}", Style::Strong.paint("==>", self.colors)))
    }

    fn print_welcome(
        &self,
        aggregator_url: &str,
        machines: usize,
        kubeconfig: &Path,
    ) -> Result<(), DemoError> {
        self.log(&format!("all {machines} machines are connected. Web pages: {aggregator_url}/"))?;
        if self.options.tour {
            return Ok(());
        }
        let own = self.own.display();
        let set = format!("OCTAVO_SERVER={aggregator_url} {own}");
        self.log("try these commands in another terminal:")?;
        for command in ["nodes", "availability", "profiles list", "node hgx-a100", "top"] {
            line(&format!("      {set} {command}"))?;
        }
        self.log("the commands that write to the simulated cluster need its kubeconfig:")?;
        let create = "profiles create --type nvidia-h200-141gb --namespace platform";
        line(&format!("      KUBECONFIG={} {set} {create}", kubeconfig.display()))?;
        self.log("events follow; Ctrl-C stops the demo")
    }
}

impl FleetMonitor {
    /// Requests the fleet's state, prints the changes and checks it.
    async fn update(&mut self) -> Result<OutputState, DemoError> {
        let rows = self.client.all_nodes().await?.items;
        self.check.nodes(&rows);
        if !self.check.all_counted() {
            let types: TypeList = self.client.get(&RequestPath::new("/api/v1/types")).await?;
            self.check.types(&types.items);
        }
        if !self.check.cluster_shown() {
            self.check_cluster().await?;
        }
        if self.quiet {
            return Ok(OutputState::Open);
        }
        for node in rows {
            let before = self.known.insert(node.name.clone(), node.clone());
            let event = Event::Node { node };
            if let Some(words) = (self.describe)(before.as_ref(), &event, self.colors)
                && print(&format!("{}    {words}\n", time_of_day()))? == OutputState::Closed
            {
                return Ok(OutputState::Closed);
            }
        }
        Ok(OutputState::Open)
    }

    /// Checks the parts that come from the simulated cluster.
    async fn check_cluster(&mut self) -> Result<(), DemoError> {
        let profiles: ProfileList = self.client.get(&RequestPath::new("/api/v1/profiles")).await?;
        let target = RequestPath::new("/api/v1/availability");
        let rows: AvailabilityList = self.client.get(&target).await?;
        let request = MatchRequest { count: Some(1), ..MatchRequest::default() };
        let target = RequestPath::new("/api/v1/match");
        let offers: MatchAnswer = self.client.post(&target, &request).await?;
        let target = RequestPath::new("/api/v1/usage").with([("limit", "1000")]);
        let usage: UsageList = self.client.get(&target).await?;
        let pending: u64 = rows.items.iter().map(|row| row.pending.pods).sum();
        self.check.cluster(ClusterCounts {
            profiles: profiles.items.len(),
            pending: usize::try_from(pending).unwrap_or(usize::MAX),
            prices: offers.matches.iter().filter(|offer| offer.cost.is_some()).count(),
            busy: usage.items.iter().filter(|row| row.tenant.utilization.is_some()).count(),
        });
        Ok(())
    }

    fn verdict(&self, machines: usize) -> Result<DemoOutcome, DemoError> {
        let missing = self.check.missing();
        if missing.is_empty() {
            let summary = self.check.summary();
            return Ok(DemoOutcome::Complete(format!(
                "==> all {machines} machines were discovered, and {summary}"
            )));
        }
        Err(DemoError::FleetMismatch(missing))
    }
}

/// Returns the address at the start of a log message.
fn address(message: &str) -> String {
    let address = message.split_whitespace().next().unwrap_or_default();
    format!("http://{address}")
}

/// Prints a line. A closed output must not end the demo before the processes are stopped in order; the next update
/// detects it.
fn line(text: &str) -> Result<(), DemoError> {
    print(&format!("{text}\n")).map(|_| ())
}

fn print(text: &str) -> Result<OutputState, DemoError> {
    output::out(text).map_err(DemoError::Print)
}

/// Reports on standard error that a connection was lost.
fn note_lost(why: &str) {
    output::note(&format!("note: {}", printable(why)));
}

/// Returns the time of day, in UTC.
fn time_of_day() -> String {
    Timestamp::now().strftime("%H:%M:%SZ").to_string()
}
