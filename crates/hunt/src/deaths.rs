//! The fast drive dies with an operation in flight, at every operation of a scenario, while the volume
//! is up: for volumes that go on without it. No request may fail; all must be there; what is left lives
//! on, survives cuts, and does not take the dead drive back (`bereft.rs`).

use engine::Tier;
use twin::{CacheLoss, Simulation, mix};

use crate::bereft::go_on;
use crate::enumerate::{Hunt, Rest};
use crate::failure::{Cut, Fall};
use crate::play::{Ended, Machine};
use crate::player::Wrong;
use crate::subject::Subject;

impl<S: Subject> Hunt<'_, S> {
    /// The case of one operation.
    pub(crate) fn die_at(&self, start: &Rest, order: u64, operation: u64) {
        let simulation = Simulation::wake(&start.snapshot);
        let victim = Machine::of(&simulation).fast;
        simulation.arm_death(victim, operation);
        let (ended, oracle, made) = self.act(&simulation, start);
        let tell = |wrong: Wrong, cuts: Vec<Cut>| {
            let message =
                format!("{}\nThe fast drive died with operation {operation}.", wrong.message);
            self.record(order, cuts, wrong.stage, message);
            let simulation = Simulation::wake(&start.snapshot);
            simulation.arm_death(victim, operation);
            self.add_trace(start, order, &simulation, None);
        };
        if let Ended::Wrong { stage, message } = ended {
            return tell(Wrong { stage, message }, Vec::new());
        }
        let seed = mix(order);
        let loss = if seed.is_multiple_of(3) { CacheLoss::LoseAll } else { CacheLoss::Torn(seed) };
        simulation.power_cut(loss);
        let fallen = {
            let mut oracle = oracle.borrow_mut();
            oracle.tell_time(simulation.now_ns());
            oracle.cut();
            Rest { snapshot: simulation.snapshot(), oracle: oracle.clone(), made }
        };
        // Odd ones: both what dies while serving and a second death while it recovers are tried.
        let (snapshot, oracle) = (&fallen.snapshot, &fallen.oracle);
        // With a multiple of three both drives would serve first.
        let seed = seed / 3 * 3 + 1;
        if let Err(wrong) = go_on(self.subject, snapshot, Tier::Slow, oracle, seed) {
            let cut = Cut { point: None, fall: Fall::Power(loss) };
            tell(wrong, vec![cut]);
        }
    }
}
