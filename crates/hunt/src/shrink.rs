//! Makes a trial that fails smaller: leaves out lives, clients, requests and faults as long as it
//! goes on failing in the same way, so that what is left is what a person must read.
//!
//! Delta debugging (Zeller and Hildebrandt 2002), with one addition: what is left out moves the
//! operation at which power failed, so points near where it should be now are tried too.

use std::time::{Duration, Instant};

use twin::{CacheLoss, CutPoint, Moment};

use crate::failure::Fall;
use crate::player::{Player, Wrong};
use crate::swarm::Trail;
use crate::trial::{End, Life, Phase, Trial};

/// Requests are made shorter only when so few are left: before, leaving them out is quicker.
const SHORTEN_FROM_STEPS: usize = 60;

/// What shrinking came to.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// The smaller trial.
    pub trial: Trial,
    /// What is wrong with it.
    pub wrong: Wrong,
    /// Trials played.
    pub played: u64,
    /// Nothing more could be left out; otherwise the time was over.
    pub complete: bool,
}

/// Shrinks within `budget`.
pub fn shrink(found: &Trail, budget: Duration) -> Shrunk {
    let mut search = Search {
        best: found.trial.clone(),
        wrong: found.wrong.clone(),
        played: 0,
        until: Instant::now() + budget,
    };
    let mut complete = false;
    while !complete && !search.is_over() {
        let before = search.size();
        search.leave_out_lives();
        search.leave_out_clients();
        search.leave_out_steps();
        search.leave_out_faults();
        search.shorten_steps();
        search.simplify();
        complete = search.size() == before && !search.is_over();
    }
    Shrunk { trial: search.best, wrong: search.wrong, played: search.played, complete }
}

/// Plays a trial; what is wrong with it, and the trial up to there.
pub(crate) fn verdict(trial: &Trial) -> Option<(Trial, Wrong)> {
    let mut player = Player::new(&trial.setting);
    let mut rest = match player.make(trial.seed) {
        Ok(rest) => rest,
        Err(wrong) => return Some((Trial { lives: Vec::new(), ..trial.clone() }, wrong)),
    };
    for (number, life) in trial.lives.iter().enumerate() {
        match player.live(&rest, life) {
            Ok(stopped) => rest = player.fall(&stopped, life.end),
            Err(wrong) => {
                let lives = trial.lives[..=number].to_vec();
                return Some((Trial { lives, ..trial.clone() }, wrong));
            }
        }
    }
    None
}

struct Search {
    best: Trial,
    wrong: Wrong,
    played: u64,
    until: Instant,
}

impl Search {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    fn size(&self) -> (usize, usize, usize) {
        let lives = &self.best.lives;
        let faults = lives.iter().map(|life| life.damage.len() + life.mischief.len()).sum();
        let bytes = lives.iter().flat_map(|life| life.clients.iter().flatten());
        let bytes: u64 = bytes.map(|step| step.bytes()).sum();
        (lives.len() + self.best.steps(), faults, bytes as usize)
    }

    /// Takes the candidate if it fails like the best so far.
    fn takes(&mut self, candidate: &Trial) -> bool {
        if self.is_over() {
            return false;
        }
        self.played += 1;
        match verdict(candidate) {
            Some((trial, wrong)) if wrong.sort() == self.wrong.sort() => {
                (self.best, self.wrong) = (trial, wrong);
                true
            }
            _ => false,
        }
    }

    /// As [`Search::takes`]; when it does not fail, with other cut points of life `number`, which
    /// has lost `removed` requests.
    fn takes_moved(&mut self, candidate: &Trial, number: usize, removed: usize) -> bool {
        if self.takes(candidate) {
            return true;
        }
        let Some(life) = candidate.lives.get(number) else { return false };
        let End::Falls { phase: Phase::Serving, point: Some(point), fall } = life.end else {
            return false;
        };
        let steps = life.steps() as u64 + 1;
        let (removed, operation) = (removed as u64, point.operation);
        let scaled = 12 + operation.saturating_sub(12) * steps / (steps + removed);
        let moved = [
            operation.saturating_sub(removed),
            operation.saturating_sub(2 * removed),
            scaled,
            scaled + 1,
            scaled.saturating_sub(1),
        ];
        let mut tried = vec![operation];
        for operation in moved {
            if tried.contains(&operation) {
                continue;
            }
            tried.push(operation);
            let mut candidate = candidate.clone();
            let point = Some(CutPoint { operation, ..point });
            candidate.lives[number].end = End::Falls { phase: Phase::Serving, point, fall };
            if self.takes(&candidate) {
                return true;
            }
        }
        false
    }

    fn leave_out_lives(&mut self) {
        let mut number = 0;
        while number + 1 < self.best.lives.len() {
            let mut candidate = self.best.clone();
            candidate.lives.remove(number);
            if !self.takes(&candidate) {
                number += 1;
            }
        }
    }

    fn leave_out_clients(&mut self) {
        for number in 0..self.best.lives.len() {
            let mut client = 0;
            while self.best.lives.get(number).is_some_and(|life| client < life.clients.len()) {
                let mut candidate = self.best.clone();
                let removed = candidate.lives[number].clients.remove(client).len();
                if !self.takes_moved(&candidate, number, removed) {
                    client += 1;
                }
            }
        }
    }

    fn leave_out_steps(&mut self) {
        for number in 0..self.best.lives.len() {
            let steps = |search: &Search| search.best.lives.get(number).map_or(0, Life::steps);
            let mut chunk = steps(self).div_ceil(2);
            while chunk > 0 && !self.is_over() {
                let mut at = 0;
                while at < steps(self) && !self.is_over() {
                    let mut candidate = self.best.clone();
                    let removed = remove(&mut candidate.lives[number], at, chunk);
                    if !self.takes_moved(&candidate, number, removed) {
                        at += chunk;
                    }
                }
                chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
            }
            if let Some(life) = self.best.lives.get_mut(number) {
                life.clients.retain(|steps| !steps.is_empty());
            }
        }
    }

    fn leave_out_faults(&mut self) {
        for number in 0..self.best.lives.len() {
            for damage in [true, false] {
                let mut at = 0;
                while let Some(life) = self.best.lives.get(number) {
                    let count = if damage { life.damage.len() } else { life.mischief.len() };
                    if at >= count {
                        break;
                    }
                    let mut candidate = self.best.clone();
                    let life = &mut candidate.lives[number];
                    if damage {
                        life.damage.remove(at);
                    } else {
                        life.mischief.remove(at);
                    }
                    if !self.takes(&candidate) {
                        at += 1;
                    }
                }
            }
        }
    }

    fn shorten_steps(&mut self) {
        if self.best.steps() > SHORTEN_FROM_STEPS {
            return;
        }
        for number in 0..self.best.lives.len() {
            let clients = self.best.lives[number].clients.len();
            for client in 0..clients {
                let mut at = 0;
                while self.best.lives.get(number).is_some_and(|life| {
                    life.clients.get(client).is_some_and(|steps| at < steps.len())
                }) {
                    let mut candidate = self.best.clone();
                    let step = &mut candidate.lives[number].clients[client][at];
                    let shorter = step.shorter();
                    let Some(shorter) = shorter else {
                        at += 1;
                        continue;
                    };
                    *step = shorter;
                    if !self.takes(&candidate) {
                        at += 1;
                    }
                }
            }
        }
    }

    /// Plainer falls, moments and drives.
    fn simplify(&mut self) {
        for number in 0..self.best.lives.len() {
            let Some(End::Falls { phase, point, fall }) =
                self.best.lives.get(number).map(|life| life.end)
            else {
                continue;
            };
            let mut plainer = vec![
                End::Closed,
                End::Falls { phase, point: None, fall: Fall::Power(CacheLoss::LoseAll) },
                End::Falls { phase, point: None, fall },
                End::Falls { phase, point, fall: Fall::Power(CacheLoss::LoseAll) },
                End::Falls { phase, point, fall: Fall::Power(CacheLoss::KeepAll) },
            ];
            if let Some(CutPoint { operation, .. }) = point {
                let point = Some(CutPoint { operation, moment: Moment::Submitted });
                plainer.push(End::Falls { phase, point, fall });
            }
            let own = plainer.iter().position(|end| *end == End::Falls { phase, point, fall });
            for end in plainer.into_iter().take(own.unwrap_or(usize::MAX)) {
                let mut candidate = self.best.clone();
                candidate.lives[number].end = end;
                if self.takes(&candidate) {
                    break;
                }
            }
        }
        for n in 0..2 {
            let mut candidate = self.best.clone();
            let setting = &mut candidate.setting;
            let drive = if n == 0 { &mut setting.fast } else { &mut setting.slow };
            drive.latencies.stall_permille = 0;
            drive.latencies.jitter_percent = 100;
            self.takes(&candidate);
        }
    }
}

/// Takes `count` requests out of a life, counted over its clients from `at` on; gives how many
/// there were.
fn remove(life: &mut Life, at: usize, count: usize) -> usize {
    let mut place = 0;
    let before = life.steps();
    for steps in &mut life.clients {
        steps.retain(|_| {
            place += 1;
            !(at < place && place <= at + count)
        });
    }
    before - life.steps()
}
