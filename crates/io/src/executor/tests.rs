use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::{Device, DeviceId, DeviceInfo, WaitList};

/// A world whose operations complete one microsecond apart, newest first within a round, so that
/// completions arrive out of order.
#[derive(Default)]
struct Backwards {
    now_ns: u64,
    under_way: Vec<(OpId, Op)>,
    /// Power fails when this many operations have been submitted; 0: never.
    submissions_max: usize,
    submissions: usize,
}

impl World for Backwards {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn random(&mut self) -> u64 {
        4
    }

    fn submit(&mut self, id: OpId, op: Op) {
        self.submissions += 1;
        self.under_way.push((id, op));
    }

    fn powered(&self) -> bool {
        self.submissions_max == 0 || self.submissions < self.submissions_max
    }

    fn poll(&mut self, park: Park, done: &mut Vec<Completed>) {
        if let Some((id, op)) = self.under_way.pop() {
            self.now_ns += 1000;
            let buf = match op {
                Op::Read { mut buf, at, .. } => {
                    buf.fill(at as u8);
                    Some(buf)
                }
                Op::Write { buf, .. } => Some(buf),
                _ => None,
            };
            done.push(Completed { id, buf, result: Ok(0) });
        } else if let Park::Until(deadline_ns) = park {
            self.now_ns = self.now_ns.max(deadline_ns);
        }
    }

    fn shutdown(&mut self, _: SocketId) {}
    fn close(&mut self, _: SocketId) {}
}

fn executor() -> (Io, Device) {
    executor_over(Backwards::default())
}

fn executor_over(world: Backwards) -> (Io, Device) {
    let io = Io::new(Box::new(world), Pool::new(0));
    let info = DeviceInfo {
        path: "test".into(),
        size_bytes: 1 << 20,
        sector_bytes: 512,
        atomic_write_bytes: 512,
        rotational: None,
        read_only: false,
    };
    (io.clone(), Device::new(io, DeviceId(0), info))
}

#[test]
fn operations_in_flight_together_are_awaited_in_any_order() {
    let (io, device) = executor();
    let contents = io.block_on(async {
        let first = device.read(1, io.pool().take(512));
        let second = device.read(2, io.pool().take(512));
        let (a, outcome) = first.await;
        outcome.unwrap();
        let (b, outcome) = second.await;
        outcome.unwrap();
        (a[0], b[511])
    });
    assert_eq!(contents, (1, 2));
    assert_eq!(io.in_flight(), 0);
}

#[test]
fn a_dropped_operation_keeps_its_buffer_until_it_is_done() {
    let (io, device) = executor();
    drop(device.read(1, io.pool().take(512)));
    assert_eq!(io.in_flight(), 1);
    assert!(io.pool().usage().in_use_bytes > 0);
    io.drain();
    assert_eq!(io.pool().usage().in_use_bytes, 0);
    // Its place in the table is used again.
    io.block_on(device.flush()).unwrap();
    assert_eq!(io.0.ops.borrow().slots.len(), 1);
}

#[test]
fn timers_fire_in_order_of_their_deadlines() {
    let (io, _) = executor();
    let order = Rc::new(RefCell::new(Vec::new()));
    for delay_ns in [300, 100, 200, 100] {
        let (io, order) = (io.clone(), order.clone());
        io.clone().spawn(async move {
            io.sleep(delay_ns).await;
            order.borrow_mut().push(delay_ns);
        });
    }
    io.block_on(io.sleep(1000));
    assert_eq!(*order.borrow(), [100, 100, 200, 300]);
    assert_eq!(io.now_ns(), 1000);
}

#[test]
fn a_waiting_task_sees_what_another_changed() {
    let (io, _) = executor();
    let list = Rc::new(WaitList::new());
    let value = Rc::new(Cell::new(0));
    {
        let (io, list, value) = (io.clone(), list.clone(), value.clone());
        io.clone().spawn(async move {
            for step in 1..=3 {
                io.yield_now().await;
                value.set(step);
                list.wake_all();
            }
        });
    }
    let seen = io.block_on(list.until(|| (value.get() == 3).then(|| value.get())));
    assert_eq!(seen, 3);
}

#[test]
fn a_gate_lets_in_as_many_as_fit_in_order_of_arrival() {
    let (io, _) = executor();
    let gate = crate::Gate::new(10);
    let order = Rc::new(RefCell::new(Vec::new()));
    for (name, amount) in [("a", 6), ("b", 6), ("c", 2), ("huge", 50)] {
        let (io, gate, order) = (io.clone(), gate.clone(), order.clone());
        io.clone().spawn(async move {
            let _pass = gate.enter(amount).await;
            order.borrow_mut().push(name);
            io.sleep(100).await;
        });
    }
    io.block_on(io.sleep(10_000));
    assert_eq!(*order.borrow(), ["a", "b", "c", "huge"]);
    assert_eq!(gate.used(), 0);
}

#[test]
#[should_panic(expected = "nothing is under way")]
fn a_lost_wake_up_is_loud() {
    let (io, _) = executor();
    io.block_on(std::future::pending::<()>());
}

#[test]
fn nothing_runs_after_power_is_lost() {
    let (io, device) = executor_over(Backwards { submissions_max: 2, ..Backwards::default() });
    let after = Rc::new(Cell::new(false));
    let outcome = io.run_until_cut(async {
        let (buf, outcome) = device.read(1, io.pool().take(512)).await;
        outcome.unwrap();
        let seen = after.clone();
        io.spawn(async move { seen.set(true) });
        device.write(0, buf).await.1
    });
    assert_eq!(outcome, None);
    io.drain();
    io.drop_tasks();
    assert!(!after.get());
}

#[test]
#[should_panic(expected = "lost power")]
fn a_world_without_power_does_not_hang_the_caller() {
    let (io, device) = executor_over(Backwards { submissions_max: 1, ..Backwards::default() });
    let _ = io.block_on(device.flush());
}
