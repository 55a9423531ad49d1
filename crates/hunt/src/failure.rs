//! One thing found: where, under which cut, with which seed, and what happened before.

use std::fmt;

use twin::{CacheLoss, CutPoint, Moment};

/// A power cut of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// When; `None`: after the end of the act.
    pub point: Option<CutPoint>,
    /// What the caches lost.
    pub loss: CacheLoss,
}

/// Something that must not be.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The scenario's name.
    pub scenario: String,
    /// Its seed.
    pub seed: u64,
    /// The cuts that led there, first to last.
    pub cuts: Vec<Cut>,
    /// What was being done.
    pub stage: &'static str,
    /// What went wrong.
    pub message: String,
    /// The last operations of the drives before the first cut, if they were kept.
    pub trace: Vec<String>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.point {
            None => write!(f, "after the last operation")?,
            Some(CutPoint { operation, moment }) => {
                let moment = match moment {
                    Moment::Before => "about to be submitted",
                    Moment::Submitted => "in flight",
                    Moment::Completed => "completed unheard",
                };
                write!(f, "with operation {operation} {moment}")?;
            }
        }
        write!(f, ", caches: {:?}", self.loss)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "scenario '{}', seed {}, while {}:", self.scenario, self.seed, self.stage)?;
        for cut in &self.cuts {
            writeln!(f, "  power cut {cut}")?;
        }
        writeln!(f, "  {}", self.message.replace('\n', "\n  "))?;
        for line in &self.trace {
            writeln!(f, "  | {line}")?;
        }
        Ok(())
    }
}
