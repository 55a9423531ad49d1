//! A lean NBD client that batches: what a server can do when the client is not the limit.
//!
//! ```text
//! nbd_load SOCKET read|write DEPTH SECONDS [BLOCK] [SPAN] [SERVER_PID]
//! ```
//!
//! Random offsets in the first SPAN bytes (all of them when left out), simple replies, one
//! connection. Every reply is checked for its error; with the process id of the server its CPU time
//! per request is printed too.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Received at once, in bytes: what the kernel has, up to this.
const RECEIVE_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, kind, depth, seconds, rest @ ..] = arguments.as_slice() else {
        return Err("nbd_load SOCKET read|write DEPTH SECONDS [BLOCK] [SPAN] [SERVER_PID]".into());
    };
    let writes = match kind.as_str() {
        "read" => false,
        "write" => true,
        other => return Err(format!("'{other}' is neither read nor write").into()),
    };
    let (depth, seconds): (usize, u64) = (depth.parse()?, seconds.parse()?);
    let block = rest.first().map_or(Ok(4096), |text| io::units::parse_bytes(text))?;
    let span = rest.get(1).map(|text| io::units::parse_bytes(text)).transpose()?;
    let pid = rest.get(2);

    let mut stream = UnixStream::connect(socket)?;
    let size = open(&mut stream)?;
    let blocks = span.unwrap_or(size).min(size) / block;
    let mut load = Load { writes, block: block as usize, blocks, state: 0x1234_5678_9abc_def1 };
    let cpu_before = pid.map_or(0, |pid| cpu_ns(pid));
    let begun = Instant::now();
    let requests = load.run(&mut stream, depth, Duration::from_secs(seconds))?;
    let elapsed = begun.elapsed();
    let rate = requests as f64 / elapsed.as_secs_f64();
    print!("{kind} {block} depth {depth}: {rate:.0} IOPS");
    if let Some(pid) = pid {
        let used_us = (cpu_ns(pid) - cpu_before) as f64 / 1e3;
        print!(", server CPU {:.2} us per request", used_us / requests as f64);
    }
    println!();
    Ok(())
}

/// Through the handshake; gives the export's size in bytes.
fn open(stream: &mut UnixStream) -> Result<u64, Box<dyn Error>> {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    stream.write_all(&3_u32.to_be_bytes())?;
    stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    let size = answer.first_chunk::<8>().ok_or("a short answer")?;
    Ok(u64::from_be_bytes(*size))
}

/// CPU time of all threads of a process, in ns.
fn cpu_ns(pid: &str) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

struct Load {
    writes: bool,
    block: usize,
    blocks: u64,
    state: u64,
}

impl Load {
    fn run(
        &mut self,
        stream: &mut UnixStream,
        depth: usize,
        duration: Duration,
    ) -> Result<u64, Box<dyn Error>> {
        let reply_bytes = 16 + if self.writes { 0 } else { self.block };
        let mut received = vec![0; RECEIVE_BYTES.max(2 * reply_bytes)];
        let mut kept = 0;
        let mut batch = Vec::new();
        let (mut done, mut due) = (0, depth);
        let end = Instant::now() + duration;
        let mut under_way = 0;
        loop {
            batch.clear();
            (0..due).for_each(|_| self.put_request(&mut batch));
            stream.write_all(&batch)?;
            under_way += due;
            let count = stream.read(&mut received[kept..])?;
            if count == 0 {
                return Err("the server left".into());
            }
            kept += count;
            let complete = kept / reply_bytes;
            for reply in received[..complete * reply_bytes].chunks_exact(reply_bytes) {
                if reply[4..8] != [0; 4] {
                    return Err("a request failed".into());
                }
            }
            received.copy_within(complete * reply_bytes..kept, 0);
            kept -= complete * reply_bytes;
            done += complete as u64;
            under_way -= complete;
            due = if Instant::now() < end { complete } else { 0 };
            if due == 0 && under_way == 0 {
                return Ok(done);
            }
        }
    }

    fn put_request(&mut self, batch: &mut Vec<u8>) {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let at = self.state % self.blocks * self.block as u64;
        batch.extend_from_slice(&0x2560_9513_u32.to_be_bytes());
        batch.extend_from_slice(&[0, 0, 0, u8::from(self.writes)]);
        batch.extend_from_slice(&7_u64.to_be_bytes());
        batch.extend_from_slice(&at.to_be_bytes());
        batch.extend_from_slice(&(self.block as u32).to_be_bytes());
        if self.writes {
            batch.resize(batch.len() + self.block, 0x5a);
        }
    }
}
