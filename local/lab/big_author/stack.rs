//! The measured stack. It runs in this process, in RAM if possible, and is removed afterwards.

use std::path::PathBuf;

use anyhow::Context;
use tempfile::TempDir;
use tidemark::App;

use tidemark_local::{Options, Stack, Weather};
use tidemark_tools::api::Api;

/// The largest threshold that the template accepts. Posts of authors with fewer followers are pushed.
pub(crate) const NEVER_PULLED: u32 = 10_000_000;
/// The function whose stream has the edges that were written without the API. No view needs them.
const PROJECTOR: &str = "projector";

/// A stack with its own client.
#[derive(Debug)]
pub(crate) struct OwnStack {
    pub(crate) stack: Stack,
    pub(crate) api: Api,
    options: Options,
    folder: TempDir,
}

impl OwnStack {
    pub(crate) async fn start(template: PathBuf) -> anyhow::Result<Self> {
        let folder = crate::folder::in_ram()?;
        let mut options = Options::new(folder.path());
        options.template = template;
        options.schedules = false;
        options.parameters.insert("PullThreshold".to_owned(), NEVER_PULLED.to_string());
        let (stack, api) = started(&options).await?;
        Ok(Self { stack, api, options, folder })
    }

    /// Changes the weather, also for the time after a restart.
    pub(crate) fn set_weather(&mut self, weather: Weather, seed: u64) {
        (self.options.weather, self.options.weather_seed) = (weather, Some(seed));
        self.stack.set_weather(weather, seed);
    }

    /// Stops the stack and starts it again on the same data, with a new client.
    pub(crate) async fn restart(self) -> anyhow::Result<Self> {
        self.stack.stop().await?;
        let (stack, api) = started(&self.options).await?;
        Ok(Self { stack, api, ..self })
    }

    /// Stops the stack and removes its data.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.stack.stop().await?;
        self.folder.close().context("cannot remove the stack's data")
    }

    /// The stores in the form that a function uses. Fails if the function does not run in this process.
    pub(crate) fn app(&self, function: &str) -> anyhow::Result<&App> {
        self.stack.app(function).with_context(|| format!("`{function}` does not run in this process"))
    }

    /// The number of fan-out messages that are queued or in flight.
    pub(crate) async fn fan_out_messages(&self) -> anyhow::Result<u64> {
        let status = self.stack.status().await?;
        let counts = status.queues.get("FanOutQueue").context("the stack has no FanOutQueue")?;
        Ok((counts.visible + counts.in_flight + counts.delayed) as u64)
    }
}

async fn started(options: &Options) -> anyhow::Result<(Stack, Api)> {
    let stack = Stack::start(options.clone()).await?;
    stack.pause(PROJECTOR).await?;
    let address = stack.base_url().parse().map_err(anyhow::Error::msg)?;
    Ok((stack, Api::new(&address)?))
}
