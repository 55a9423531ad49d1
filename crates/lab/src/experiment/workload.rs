//! A workload of one's own: a fio job file, played as it is.

use super::{Bound, Chart, Experiment, RunRecord, Stage, Step};
use crate::fio::{JobFile, Refusal};

/// The longest that jobs without a time of their own may run: a bound, and no part of the workload.
const SECONDS_MAX: u64 = 3600;

/// See the head of the file.
pub struct Workload {
    file: String,
    text: String,
}

impl Workload {
    /// The job file of that name and content.
    ///
    /// # Errors
    /// What cannot be played, by line.
    pub fn new(file: &str, text: &str) -> Result<Workload, Refusal> {
        JobFile::parse(file, text)?;
        Ok(Workload { file: file.to_owned(), text: text.to_owned() })
    }
}

impl Experiment for Workload {
    fn name(&self) -> &str {
        &self.file
    }

    fn question(&self) -> &str {
        "a workload of your own"
    }

    fn source(&self) -> &str {
        ""
    }

    fn stage(&self) -> Stage {
        Stage::Drive
    }

    fn steps(&self, _: &str, _: u64) -> Vec<Step> {
        vec![Step {
            name: "jobs".to_owned(),
            renew: true,
            rest_s: 0,
            restart: false,
            cut: None,
            memory: None,
            job: self.text.clone(),
            figures: Vec::new(),
            bound: Bound { seconds: Some(SECONDS_MAX), requests: None },
        }]
    }

    fn charts(&self, _: &RunRecord) -> Vec<Chart> {
        // Response times are on every run's page.
        Vec::new()
    }
}
