//! Bringing home what only the fast drive of a cache has: asked of the server or done at rest, with
//! progress, and an end to it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use engine::{CacheMode, Engine};
use export::control::{ControlReply, ControlRequest};
use io::Io;
use io::units::human_bytes;
use serde::{Deserialize, Serialize};

use crate::at_rest;
use crate::failure::{Exit, Failure, Outcome};
use crate::progress;
use crate::selection::{self, Selection};
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::survey;
use crate::volume_name::VolumeName;

/// How often the server is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What shall be so at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// The slow drive has everything that was written before.
    Flushed,
    /// And the cache is in write-through, so that it can do without its fast drive.
    Evacuated,
    /// And the cache is in write-through.
    WriteThrough,
    /// And the cache is in write-around.
    WriteAround,
}

impl Goal {
    /// What it takes to switch to the mode, where that takes more than a moment.
    fn of(mode: CacheMode) -> Option<Goal> {
        match mode {
            CacheMode::WriteBack => None,
            CacheMode::WriteThrough => Some(Goal::WriteThrough),
            CacheMode::WriteAround => Some(Goal::WriteAround),
        }
    }
}

async fn bring_home(engine: &Engine, goal: Goal) -> Result<(), engine::Error> {
    match goal {
        Goal::Flushed => engine.bring_home().await,
        // In write-around the slow drive has everything, too.
        Goal::Evacuated if engine.status().cache_mode == Some(CacheMode::WriteAround) => {
            engine.bring_home().await
        }
        Goal::Evacuated | Goal::WriteThrough => {
            engine.set_cache_mode(CacheMode::WriteThrough).await
        }
        Goal::WriteAround => engine.set_cache_mode(CacheMode::WriteAround).await,
    }
}

/// What a server knows of it.
#[derive(Default)]
pub struct Homecoming {
    /// Which one the last was.
    number: Cell<u64>,
    running: Cell<bool>,
    failed: RefCell<Option<String>>,
}

/// How far it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Standing {
    /// Of which one this is told: another one's end, or a server that knows of none, says nothing of ours.
    number: u64,
    running: bool,
    failed: Option<String>,
    dirty_bytes: u64,
}

impl Standing {
    /// How the one with this number has ended, if it has.
    fn end_of(&self, number: u64) -> Option<Result<(), Failure>> {
        if self.number != number {
            let left = human_bytes(self.dirty_bytes);
            return Some(Err(Failure::failed(format!(
                "it was not seen to its end: the server was started anew, or another one was begun. {left} are not home"
            ))
            .hint("ask for it again; what has come home stays there")));
        }
        if self.running {
            return None;
        }
        Some(match &self.failed {
            Some(problem) => Err(Failure::failed(problem)),
            None => Ok(()),
        })
    }
}

impl Homecoming {
    /// Whether one is under way.
    pub fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Answers the server's `home` command: begins, ends, or tells how far it is.
    pub fn answer(
        self: &Rc<Homecoming>,
        io: &Io,
        engine: &Engine,
        request: &ControlRequest,
    ) -> ControlReply {
        let argument = |name: &str| request.arguments.get(name).cloned();
        let goal = argument("goal").map(serde_json::from_value::<Goal>);
        match (goal, argument("cancel").is_some()) {
            (Some(Err(error)), _) => {
                return ControlReply::failed("bad_goal", error.to_string());
            }
            (Some(Ok(_)), _) if self.running.get() => {
                let text = "it is being done already; 'bimetal flush NAME --cancel' ends it";
                return ControlReply::failed("running", text);
            }
            (Some(Ok(goal)), _) => {
                // One that no earlier server has used, and none before it here.
                self.number.set(io.random());
                self.running.set(true);
                *self.failed.borrow_mut() = None;
                let (home, engine) = (self.clone(), engine.clone());
                io.spawn(async move {
                    let outcome = bring_home(&engine, goal).await;
                    *home.failed.borrow_mut() = outcome.err().map(|error| error.to_string());
                    home.running.set(false);
                });
            }
            (None, true) => engine.cancel_homecoming(),
            (None, false) => {}
        }
        let standing = Standing {
            number: self.number.get(),
            running: self.running.get(),
            failed: self.failed.borrow().clone(),
            dirty_bytes: engine.status().dirty_bytes,
        };
        match serde_json::to_value(standing) {
            Ok(value) => ControlReply::Done(value),
            Err(error) => ControlReply::failed("internal", error.to_string()),
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    name: String,
    /// Bytes that only the fast drive had.
    brought_bytes: u64,
    /// It is served, and was so meanwhile.
    live: bool,
}

/// Brings everything home and waits for it.
pub fn bring(settings: &Settings, command: &str, name: &VolumeName, goal: Goal) -> Outcome {
    let selection = selection::by_name(settings, name)?;
    let live = ServerRecord::serving(settings, &selection)?.is_some();
    let brought_bytes = if live {
        ask(settings, &selection, goal)?
    } else {
        bring_home_at_rest(settings, &selection, goal)?
    };
    let report = Report { name: selection.name.to_string(), brought_bytes, live };
    settings.output.show(command, &report, |report| {
        let brought = human_bytes(report.brought_bytes);
        let end = match goal {
            Goal::Flushed => "the slow drive has everything",
            _ => "the fast drive may be taken away when the server has ended",
        };
        format!("volume '{}': {brought} brought home; {end}\n", report.name)
    })?;
    Ok(Exit::Done)
}

/// Has a server switch to a mode in which the slow drive has everything, and waits for it. `false`: to this
/// mode nothing has to come home.
pub fn switch(
    settings: &Settings,
    selection: &Selection,
    mode: CacheMode,
) -> Result<bool, Failure> {
    let Some(goal) = Goal::of(mode) else { return Ok(false) };
    ask(settings, selection, goal)?;
    Ok(true)
}

/// Ends what is under way.
pub fn cancel(settings: &Settings, command: &str, name: &VolumeName) -> Outcome {
    let selection = selection::by_name(settings, name)?;
    if ServerRecord::serving(settings, &selection)?.is_none() {
        return Err(Failure::failed(format!("volume '{name}' is not served"))
            .hint("a flush at rest ends with the command that does it"));
    }
    let standing = stand(settings, &selection, &ControlRequest::new("home").with("cancel", true))?;
    settings.output.show(command, &standing, |standing| {
        let left = human_bytes(standing.dirty_bytes);
        match standing.running {
            true => format!("volume '{name}': ended; {left} are not home\n"),
            false => format!("volume '{name}': nothing was under way\n"),
        }
    })?;
    Ok(Exit::Done)
}

fn stand(
    settings: &Settings,
    selection: &Selection,
    request: &ControlRequest,
) -> Result<Standing, Failure> {
    let value = survey::ask(&settings.control_socket(&selection.name), request)?;
    serde_json::from_value(value).map_err(|error| {
        Failure::failed(format!("the server gave an answer of another version: {error}"))
    })
}

fn ask(settings: &Settings, selection: &Selection, goal: Goal) -> Result<u64, Failure> {
    let look = ControlRequest::new("home");
    let before = stand(settings, selection, &look)?.dirty_bytes;
    let goal = serde_json::to_value(goal).map_err(Failure::failed)?;
    let begun = stand(settings, selection, &ControlRequest::new("home").with("goal", goal))?;
    let bar = progress::bar("bringing home");
    bar.set_length(before);
    loop {
        let standing = stand(settings, selection, &look)?;
        bar.set_position(before.saturating_sub(standing.dirty_bytes));
        if let Some(end) = standing.end_of(begun.number) {
            bar.finish_and_clear();
            return end.map(|()| before.saturating_sub(standing.dirty_bytes));
        }
        sleep(LOOK_EVERY);
    }
}

fn bring_home_at_rest(
    settings: &Settings,
    selection: &Selection,
    goal: Goal,
) -> Result<u64, Failure> {
    at_rest::change(settings, selection, async |io, engine| {
        let before = engine.status().dirty_bytes;
        let bar = progress::bar("bringing home");
        bar.set_length(before);
        let watched = Rc::new(Cell::new(true));
        let (watching, watcher, eye) = (watched.clone(), io.clone(), engine.clone());
        io.spawn(async move {
            while watching.get() {
                bar.set_position(before.saturating_sub(eye.status().dirty_bytes));
                watcher.sleep(LOOK_EVERY.as_nanos() as u64).await;
            }
            bar.finish_and_clear();
        });
        let brought = bring_home(engine, goal).await;
        watched.set(false);
        brought.map(|()| before)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_another_one_is_not_taken_for_ours() {
        let standing = |number, running, failed: Option<&str>| Standing {
            number,
            running,
            failed: failed.map(str::to_owned),
            dirty_bytes: 4096,
        };
        assert!(standing(7, true, None).end_of(7).is_none());
        assert!(standing(7, false, None).end_of(7).unwrap().is_ok());
        assert!(standing(7, false, Some("no")).end_of(7).unwrap().is_err());
        // A server that was started anew knows of none; another one may be under way, or done.
        for other in [standing(0, false, None), standing(8, true, None), standing(8, false, None)] {
            let failure = other.end_of(7).unwrap().unwrap_err();
            assert!(failure.message.contains("not seen to its end"), "{failure}");
        }
    }
}
