//! Bringing home what only the fast drive of a cache has: asked of the server or done at rest, with
//! progress, and an end to it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use engine::{CacheMode, Engine};
use export::control::{ControlReply, ControlRequest};
use io::Io;
use io::units::human_bytes;
use serde::{Deserialize, Serialize};

use crate::at_rest;
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::progress;
use crate::selection::{self, Selection};
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::survey;
use crate::volume_name::VolumeName;

/// How often the server is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Who ends one waits so long for it: what is on its way home arrives first, a log full of small pieces on a
/// hard disk in the worst case.
const END_PATIENCE: Duration = Duration::from_secs(30);

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
        // In write-around the slow drive has everything, too. A volume without modes is refused as by a flush.
        Goal::Evacuated
            if matches!(engine.status().cache_mode, Some(CacheMode::WriteAround) | None) =>
        {
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
    /// Somebody has asked for its end.
    cancelled: Cell<bool>,
    failed: RefCell<Option<String>>,
}

/// What is left to do after an end that was none.
const AGAIN: &str = "ask for it again; what has come home stays there";

/// How far it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Standing {
    /// Of which one this is told: another one's end, or a server that knows of none, says nothing of ours.
    number: u64,
    running: bool,
    /// It was ended, or is about to be.
    cancelled: bool,
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
            .hint(AGAIN)));
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

/// How it stands with one that Ctrl-C has ended.
fn ended_by_hand(dirty_bytes: u64, goal: Goal) -> Failure {
    let left = human_bytes(dirty_bytes);
    let state = match goal {
        Goal::Flushed => "all else is as it was",
        _ => "the mode is the one it was",
    };
    Failure::failed(format!("ended by Ctrl-C: {left} are not home, and {state}")).hint(AGAIN)
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
        // Whoever has begun one ends that one, and none that another has begun since.
        let cancels = argument("cancel")
            .is_some_and(|which| which.as_u64().is_none_or(|number| number == self.number.get()));
        match (goal, cancels) {
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
                self.cancelled.set(false);
                *self.failed.borrow_mut() = None;
                let (home, engine) = (self.clone(), engine.clone());
                io.spawn(async move {
                    let outcome = bring_home(&engine, goal).await;
                    // Something else may have ended it: a drive that failed.
                    let unsuitable = matches!(outcome, Err(engine::Error::Unsuitable(_)));
                    home.cancelled.set(home.cancelled.get() && unsuitable);
                    *home.failed.borrow_mut() = outcome.err().map(|error| error.to_string());
                    home.running.set(false);
                });
            }
            (None, true) if self.running.get() => {
                self.cancelled.set(true);
                engine.cancel_homecoming();
            }
            (None, _) => {}
        }
        let standing = Standing {
            number: self.number.get(),
            running: self.running.get(),
            cancelled: self.cancelled.get(),
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
    let brought_bytes = reach(settings, &selection, live, goal)?;
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

/// Has the volume switch to a mode in which the slow drive has everything, and waits for it. `false`: to this
/// mode nothing has to come home.
pub fn switch(
    settings: &Settings,
    selection: &Selection,
    live: bool,
    mode: CacheMode,
) -> Result<bool, Failure> {
    let Some(goal) = Goal::of(mode) else { return Ok(false) };
    reach(settings, selection, live, goal)?;
    Ok(true)
}

/// Has the server reach the goal, or does it here where there is none; gives the bytes that came home.
fn reach(
    settings: &Settings,
    selection: &Selection,
    live: bool,
    goal: Goal,
) -> Result<u64, Failure> {
    if live {
        ask(settings, selection, goal)
    } else {
        bring_home_at_rest(settings, selection, goal)
    }
}

/// Ends what is under way.
pub fn cancel(settings: &Settings, command: &str, name: &VolumeName) -> Outcome {
    let selection = selection::by_name(settings, name)?;
    if ServerRecord::serving(settings, &selection)?.is_none() {
        return Err(Failure::failed(format!("volume '{name}' is not served"))
            .hint("a flush at rest ends with the command that does it"));
    }
    let mut standing = stand(settings, &selection, &cancelling(None))?;
    let was_running = standing.running;
    let deadline = Instant::now() + END_PATIENCE;
    while standing.running && Instant::now() < deadline {
        sleep(LOOK_EVERY);
        let now = stand(settings, &selection, &cancelling(Some(standing.number)))?;
        // Another one was begun: then ours has ended.
        let is_ours = now.number == standing.number;
        standing = Standing { running: now.running && is_ours, ..now };
    }
    settings.output.show(command, &standing, |standing| {
        let left = human_bytes(standing.dirty_bytes);
        let said = match (was_running, standing.running, standing.cancelled) {
            (false, ..) => "nothing was under way".to_owned(),
            (true, true, _) => {
                "it is being ended; what is on its way home arrives first".to_owned()
            }
            (true, false, true) => format!("ended; {left} are not home"),
            (true, false, false) => "it came to its own end first".to_owned(),
        };
        format!("volume '{name}': {said}\n")
    })?;
    Ok(Exit::Done)
}

/// Ends the one with this number, or whichever is under way.
fn cancelling(number: Option<u64>) -> ControlRequest {
    let which = number.map_or(serde_json::Value::Bool(true), Into::into);
    ControlRequest::new("home").with("cancel", which)
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
    let wanted = serde_json::to_value(goal).map_err(Failure::failed)?;
    // From here on: one that is begun and cannot be ended would be worse than one that is not begun.
    let interrupt = Interrupt::listen()?;
    let begun = stand(settings, selection, &ControlRequest::new("home").with("goal", wanted))?;
    let bar = progress::bar("bringing home");
    bar.set_length(before);
    let mut told = false;
    loop {
        let ends = interrupt.is_asked();
        if ends && !told {
            bar.suspend(|| {
                eprintln!("bimetal: ending it; a second Ctrl-C leaves that to the server")
            });
            told = true;
        }
        // Again each time: one that has only just begun does not hear it.
        let cancel = ends.then(|| cancelling(Some(begun.number)));
        let standing = stand(settings, selection, cancel.as_ref().unwrap_or(&look))?;
        bar.set_position(before.saturating_sub(standing.dirty_bytes));
        if let Some(end) = standing.end_of(begun.number) {
            bar.finish_and_clear();
            if end.is_err() && standing.number == begun.number && standing.cancelled && ends {
                return Err(ended_by_hand(standing.dirty_bytes, goal));
            }
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
    let interrupt = Rc::new(Interrupt::listen()?);
    at_rest::change(settings, selection, async |io, engine| {
        let before = engine.status().dirty_bytes;
        let bar = progress::bar("bringing home");
        bar.set_length(before);
        let watched = Rc::new(Cell::new(true));
        let (watching, watcher, eye) = (watched.clone(), io.clone(), engine.clone());
        let asked = interrupt.clone();
        io.spawn(async move {
            let mut told = false;
            while watching.get() {
                bar.set_position(before.saturating_sub(eye.status().dirty_bytes));
                if asked.is_asked() {
                    // The volume is closed in order then.
                    eye.cancel_homecoming();
                    if !told {
                        bar.suspend(|| {
                            eprintln!("bimetal: ending it; a second Ctrl-C ends this at once")
                        });
                        told = true;
                    }
                }
                watcher.sleep(LOOK_EVERY.as_nanos() as u64).await;
            }
            bar.finish_and_clear();
        });
        let brought = bring_home(engine, goal).await;
        watched.set(false);
        match brought {
            // Something else may have ended it: a drive that failed.
            Err(engine::Error::Unsuitable(_)) if interrupt.is_asked() => {
                Ok(Err(ended_by_hand(engine.status().dirty_bytes, goal)))
            }
            brought => brought.map(|()| Ok(before)),
        }
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_another_one_is_not_taken_for_ours() {
        let standing = |number, running, failed: Option<&str>| Standing {
            number,
            running,
            cancelled: false,
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
