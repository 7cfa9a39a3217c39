//! `octavo apply` and `octavo restore`: through the agent of this node, or by this process where none runs.

pub(super) mod direct;
pub(super) mod show;
mod through;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::show::Show;
pub(super) use self::through::connect;
use super::sheet::Sheet;
use super::{CliError, Exit, Report, case, input, json};
use crate::config::octavo::apply::{
    ApplyFormat, ApplySettings, ChoiceSettings, Doer, RestoreSettings, RunSettings,
};
use crate::config::octavo::{Colors, Screen};
use crate::domain::inventory::Inventory;
use crate::domain::layout::Targets;
use crate::hw::Handle;
use crate::wire::checkpoint;
use crate::wire::local::{Choice, Request, Status};

/// Opens this machine's hardware.
pub(super) type Open<'a> = &'a dyn Fn(&RunSettings) -> Result<Handle, CliError>;

/// Gives the node a layout.
pub(super) async fn apply(
    open: Open<'_>,
    settings: &ApplySettings,
    (colors, screen): (Colors, Screen),
) -> Result<Report, CliError> {
    let run = settings.run();
    let end_at = Instant::now() + run.patience().limit();
    let show = Show::new(screen);
    let ChoiceSettings::Layout { name, layouts } = settings.choice() else {
        let connected = through::connect(run.engine().state_dir()).await?;
        let agent = connected.ok_or(CliError::NoAgent)?;
        let status = through::ask(agent, &Request::Forget {}, run.patience(), &show).await?;
        return end(&status, run, colors);
    };
    let sheet = match layouts.as_ref().map(Sheet::read).transpose()? {
        None => None,
        Some(Ok(sheet)) => Some(sheet),
        Some(Err(refused)) => {
            return Ok(Report {
                notes: refused.said,
                exit: Exit::Failed,
                ..Report::default()
            });
        }
    };
    if let Some(agent) = through::connect(run.engine().state_dir()).await? {
        let choice = Choice {
            layout: name.clone(),
            layouts: sheet.map(|sheet| sheet.text),
            checkpoint: None,
        };
        let request = Request::Apply(choice);
        let status = through::ask(agent, &request, run.patience(), &show).await?;
        return end(&status, run, colors);
    }
    if settings.doer() == Doer::Agent {
        return Err(CliError::NoAgent);
    }
    let handle = open(run)?;
    let inventory = look(&handle, end_at).await?;
    let sheet = sheet.unwrap_or_else(|| Sheet::generated(&inventory));
    let layout = sheet.layout(name)?;
    let case = match case::held(&sheet, layout, &inventory) {
        Ok(case) => case,
        Err(refused) => return Ok(refused.report),
    };
    // A device tells more of itself once MIG mode is on: so the layout is looked up again before every round.
    let meant = |inventory: &Inventory| {
        let held = case::held(&sheet, layout, inventory);
        held.map_or_else(|_| case.targets.clone(), |case| case.targets)
    };
    let status = direct::run(&handle, run, (name, &meant), (&show, end_at)).await?;
    let mut report = end(&status, run, colors)?;
    report.notes.insert_str(0, &case.notes);
    Ok(report)
}

/// Brings back what a checkpoint has.
pub(super) async fn restore(
    open: Open<'_>,
    settings: &RestoreSettings,
    (colors, screen): (Colors, Screen),
) -> Result<Report, CliError> {
    let run = settings.run();
    let end_at = Instant::now() + run.patience().limit();
    let text = input::checkpoint(settings.file())?;
    let show = Show::new(screen);
    if let Some(agent) = through::connect(run.engine().state_dir()).await? {
        let request = Request::Apply(Choice {
            layout: Choice::CHECKPOINT.to_owned(),
            layouts: None,
            checkpoint: Some(text),
        });
        let status = through::ask(agent, &request, run.patience(), &show).await?;
        return end(&status, run, colors);
    }
    let handle = open(run)?;
    let inventory = look(&handle, end_at).await?;
    let read = |inventory: &Inventory| checkpoint::read(&text, inventory);
    let targets: Targets = read(&inventory).map_err(|source| CliError::Checkpoint {
        place: input::place(settings.file()),
        source,
    })?;
    let meant = |inventory: &Inventory| read(inventory).unwrap_or_else(|_| targets.clone());
    let status = direct::run(&handle, run, (Choice::CHECKPOINT, &meant), (&show, end_at)).await?;
    end(&status, run, colors)
}

async fn look(handle: &Handle, end: Instant) -> Result<Arc<Inventory>, CliError> {
    let looked = direct::look(handle, end).await;
    looked.ok_or_else(|| {
        let call = handle.unanswered(Duration::ZERO);
        CliError::Unanswered(call.unwrap_or("a call"))
    })
}

fn end(status: &Status, run: &RunSettings, colors: Colors) -> Result<Report, CliError> {
    let output = match run.format() {
        ApplyFormat::Table => show::people(status, colors),
        ApplyFormat::Json => json(status)?,
    };
    Ok(Report {
        output,
        exit: show::exit(status),
        ..Report::default()
    })
}
