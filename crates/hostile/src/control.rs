//! The control socket: what clients say to the server, and what a server may answer.

use export::control::{ControlReply, ControlServer};
use serde_json::{Value, json};

use crate::{Seed, Target, seed, wire};

/// Several receives for most inputs, so that lines arrive in pieces.
const CHUNK_BYTES: usize = 100;

pub(crate) const TARGET: Target = Target { name: "control", run, seeds };

fn run(said: &[u8]) {
    if let Ok(reply) = serde_json::from_slice::<ControlReply>(said) {
        let again = serde_json::to_vec(&reply).expect("what was read can be written");
        assert_eq!(serde_json::from_slice::<ControlReply>(&again).ok(), Some(reply));
    }
    let (io, heard) = wire::talk(said.to_vec(), CHUNK_BYTES);
    let server = ControlServer::new(io.clone(), |request| async move {
        ControlReply::Done(json!({ "command": request.command, "rest": request.arguments }))
    });
    let listener = wire::listener(&io);
    let accepting = server.clone();
    io.spawn(async move { accepting.serve(listener).await });
    io.block_on(async {
        while !heard.borrow().closed {
            io.yield_now().await;
        }
        server.shutdown().await;
    });
    assert_eq!(server.clients(), 0);
    // Tasks hold the executor that holds them; without this neither would ever go.
    io.drop_tasks();
    for line in heard.borrow().bytes.split_inclusive(|byte| *byte == b'\n') {
        assert!(line.ends_with(b"\n"), "half a line");
        serde_json::from_slice::<ControlReply>(line).expect("every answer is a reply");
    }
}

fn seeds() -> Vec<Seed> {
    let lines =
        |values: &[Value]| values.iter().map(|value| format!("{value}\n")).collect::<String>();
    let status = json!({"command": "status", "volume": "tank"});
    let set = json!({"command": "set", "options": {"a": [1, -2.5e3, null, "\u{1f980}"]}});
    vec![
        seed("status", lines(std::slice::from_ref(&status))),
        seed("several", lines(&[status, set])),
        seed("not-a-request", "[]\n{}\n\n{\"command\":5}\n{\"command\":\"x\",\"command\":\"y\"}\n"),
        seed("done", lines(&[json!({"ok": true, "value": {"state": "healthy"}})])),
        seed("failed", lines(&[json!({"ok": false, "error": {"code": "busy", "message": "m"}})])),
    ]
}
