//! The machine a run happened on, and whether it had time for it.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// More runnable tasks than this at the start means that others take the cores from the servers.
const LOAD_QUIET: f64 = 0.5;

/// Facts that a number needs beside it.
pub struct Machine {
    kernel: String,
    processor: String,
    cores: usize,
    /// Mean number of runnable tasks over the last minute, at the start.
    load: f64,
    directory: String,
}

impl Machine {
    /// Reads them from `/proc`; makes the directory that will be measured.
    pub fn look(directory: &Path) -> Result<Machine> {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        let read = |path: &str| fs::read_to_string(path).with_context(|| path.to_owned());
        let processors = read("/proc/cpuinfo")?;
        let processor = processors
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or("unknown processor", |(_, name)| name);
        let load = read("/proc/loadavg")?;
        let load = load.split_whitespace().next().and_then(|text| text.parse().ok());
        Ok(Machine {
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            processor: processor.to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            load: load.context("/proc/loadavg has no number")?,
            directory: fs::canonicalize(directory)?.display().to_string(),
        })
    }

    fn busy(&self) -> bool {
        self.load > LOAD_QUIET
    }

    /// The facts as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "kernel": self.kernel,
            "processor": self.processor,
            "cores": self.cores,
            "load_average_at_start": self.load,
            "busy": self.busy(),
            "directory": self.directory,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { kernel, processor, cores, load, directory } = self;
        write!(
            formatter,
            "Linux {kernel}, {cores} cores of {processor}, load {load:.2} at the start, {directory}"
        )?;
        if self.busy() {
            write!(
                formatter,
                "\nWARNING: this machine is busy with something else: trust ratios only, and those \
                 little; repeat when it is quiet"
            )?;
        }
        Ok(())
    }
}
