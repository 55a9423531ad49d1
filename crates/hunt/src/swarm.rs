//! One run of the swarm: a seed decides the drives, the shape of the volume, what clients do and
//! what goes wrong, and switches much of that off altogether (`nature.rs`). What one feature hides,
//! a run without it shows.
//!
//! A run is a chain of lives. Each life is played several times from the same start, up to other
//! cut points, and each of these cuts falls in several ways; what is left is opened, looked at,
//! and perhaps closed and checked. One of the falls is where the next life begins.

use crate::allowed::Allowed;
use crate::nature::Nature;
use crate::player::{Player, Rest, Wrong};
use crate::tally::Tally;
use crate::trial::{End, Life, Trial};

/// The way to something found.
#[derive(Debug, Clone)]
pub struct Trail {
    /// How to get there, as it was drawn.
    pub trial: Trial,
    /// What is wrong.
    pub wrong: Wrong,
}

/// Plays the run of `seed`. Gives what was done, and what was found.
pub fn run(seed: u64, allowed: Allowed) -> (Tally, Option<Trail>) {
    let mut nature = Nature::draw(seed, allowed);
    let setting = nature.setting.clone();
    let mut player = Player::new(&setting);
    let mut lives = Vec::new();
    let outcome = explore(&mut nature, &mut player, &mut lives);
    let mut tally = std::mem::take(&mut player.tally);
    tally.runs = 1;
    let found = outcome.err().map(|wrong| {
        let trial = Trial { seed, setting: setting.clone(), lives };
        Trail { trial, wrong }
    });
    (tally, found)
}

/// `lives` are those that led to where it is; after an error the last of them is the wrong one.
fn explore(
    nature: &mut Nature,
    player: &mut Player<'_>,
    lives: &mut Vec<Life>,
) -> Result<(), Wrong> {
    let mut rest = player.make(nature.seed)?;
    for number in 0..nature.lives {
        let mut life = nature.life(number, rest.is_closed());
        let mut next: Option<(Life, Rest)> = None;
        for _ in 0..nature.probes_of(number) {
            life.end = nature.end(number, &life);
            lives.push(life.clone());
            let stopped = player.live(&rest, &life)?;
            for end in nature.falls(&stopped, life.end) {
                let left = player.fall(&stopped, end);
                lives.last_mut().expect("just pushed").end = end;
                for _ in 0..nature.looks_after(end) {
                    aftermath(nature, player, &left, lives)?;
                }
                next = Some((Life { end, ..life.clone() }, left));
            }
            lives.pop();
        }
        let (life, left) = next.expect("a life is played at least once");
        lives.push(life);
        rest = left;
    }
    aftermath(nature, player, &rest, lives)
}

/// Opens what is left and looks at it; sometimes cuts that short and looks again, and sometimes
/// closes and checks.
fn aftermath(
    nature: &mut Nature,
    player: &mut Player<'_>,
    rest: &Rest,
    lives: &mut Vec<Life>,
) -> Result<(), Wrong> {
    let end = lives.last().map_or(End::Closed, |life| life.end);
    let (look, again) = nature.look(end);
    lives.push(look.clone());
    let stopped = player.live(rest, &look)?;
    if let Some(again) = again {
        let left = player.fall(&stopped, look.end);
        lives.push(again.clone());
        player.live(&left, &again)?;
        lives.pop();
    }
    lives.pop();
    Ok(())
}
