//! One thing found: where, under which cut, with which seed, and what happened before.

use std::fmt;

use twin::{CacheLoss, CutPoint, Moment};

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fall {
    /// Power; the caches lose this.
    Power(CacheLoss),
    /// The process; the drives finish what they have and lose nothing, but nor have they been
    /// told to keep it.
    Process,
}

/// A fall of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// When; `None`: after the end of the act.
    pub point: Option<CutPoint>,
    /// What fails.
    pub fall: Fall,
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
    /// The last requests before the first cut, if they were kept.
    pub requests: Vec<String>,
    /// The last operations of the drives before the first cut, if they were kept.
    pub trace: Vec<String>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fall {
            Fall::Power(_) => write!(f, "power cut ")?,
            Fall::Process => write!(f, "death of the process ")?,
        }
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
        match self.fall {
            Fall::Power(loss) => write!(f, ", caches: {loss:?}"),
            Fall::Process => Ok(()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "scenario '{}', seed {}, while {}:", self.scenario, self.seed, self.stage)?;
        for (number, cut) in self.cuts.iter().enumerate() {
            match (number, cut.point) {
                (0, _) => writeln!(f, "  {cut}")?,
                (_, Some(_)) => writeln!(f, "  then, in the opening after it, {cut}")?,
                (_, None) => writeln!(f, "  then, opened and used on, {cut}")?,
            }
        }
        writeln!(f, "  {}", self.message.replace('\n', "\n  "))?;
        for (what, lines) in [
            ("what clients asked for last", &self.requests),
            ("the drives' last operations", &self.trace),
        ] {
            if !lines.is_empty() {
                writeln!(f, "  {what}:")?;
            }
            for line in lines {
                writeln!(f, "  | {line}")?;
            }
        }
        Ok(())
    }
}
