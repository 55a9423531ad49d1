//! What makes a running server do something other than answer requests: signals, the end of the
//! command it runs, an order through the control socket.
//!
//! Threads wait for what only blocking calls tell and post it to the executor.

use std::process::Child;
use std::thread;

use io::{Receiver, Sender, mailbox};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Far more than ever wait: the server takes each at once.
const EVENTS_MAX: usize = 1024;

/// Something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// SIGTERM, SIGINT or SIGHUP arrived, or the control socket said stop. Coming again it says
    /// nothing new.
    Stop,
    /// SIGTERM or SIGINT arrived once more: whoever sends it does not want to wait.
    StopAtOnce,
    /// The command given with `--run` has ended, with this exit code.
    CommandEnded(u8),
    /// The volume's file cannot be reached any more: somebody has unmounted it, or broken its connection off.
    FileGone,
}

/// Where events are posted and taken.
pub struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
}

impl Events {
    /// Starts listening for signals.
    pub fn start() -> Result<Events, Failure> {
        let (sender, receiver) = mailbox(EVENTS_MAX);
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))?;
        let from_signals = sender.clone();
        spawn("signals", move || {
            let mut asked = false;
            for signal in signals.forever() {
                if from_signals.send(meaning(signal, &mut asked)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Events { sender, receiver })
    }

    /// A place to post from.
    pub fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The next event.
    pub async fn next(&mut self) -> Event {
        // We hold a sender ourselves, so there is always one.
        self.receiver.receive().await.expect("a sender is held here")
    }

    /// Tells when `child` has ended.
    pub fn watch(&self, mut child: Child) -> Result<(), Failure> {
        let sender = self.sender.clone();
        spawn("command", move || {
            let code = child.wait().map_or(1, exit_code);
            // The server may be gone already: then nobody wants to know.
            drop(sender.send(Event::CommandEnded(code)));
        })
    }
}

/// What a signal asks for; `asked` is whether somebody has asked before.
fn meaning(signal: i32, asked: &mut bool) -> Event {
    // A terminal that closes sends it, perhaps beside others: nobody has asked twice.
    if signal == SIGHUP {
        return Event::Stop;
    }
    match std::mem::replace(asked, true) {
        false => Event::Stop,
        true => Event::StopAtOnce,
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map(drop)
        .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))
}

/// The exit code as a shell would give it: 128 and the signal's number after a signal.
fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_second_order_by_hand_stops_at_once() {
        let mut asked = false;
        let signals = [SIGHUP, SIGTERM, SIGHUP, SIGINT, SIGHUP, SIGTERM];
        let events = signals.map(|signal| meaning(signal, &mut asked));
        let (stop, at_once) = (Event::Stop, Event::StopAtOnce);
        assert_eq!(events, [stop, stop, stop, at_once, stop, at_once]);
    }
}
