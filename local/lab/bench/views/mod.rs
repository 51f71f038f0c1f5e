//! Views: their memory and read cost.

mod loading;
mod memory;
mod questions;
mod reading;

use std::fmt;

use serde::Serialize;

use self::{memory::Memory, reading::Reading};
use super::{Options, server::Server};

#[derive(Debug, Serialize)]
pub(super) struct ViewsReport {
    server: String,
    allocator: String,
    seed: u64,
    memory: Memory,
    reading: Reading,
}

pub(super) async fn measure(server: &Server, options: &Options) -> anyhow::Result<ViewsReport> {
    let info = server.info(&["server", "memory"]).await?;
    Ok(ViewsReport {
        server: info.server()?,
        allocator: info.text("mem_allocator")?.to_owned(),
        seed: options.seed,
        memory: memory::measure(server, options.readers as usize, options.seed).await?,
        reading: reading::measure(server, options).await?,
    })
}

impl fmt::Display for ViewsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {}\n", self.server, self.allocator)?;
        write!(f, "{}\n{}", self.memory, self.reading)
    }
}
