//! NBD: a client's whole conversation, and one that begins when the handshake is over.

use std::rc::Rc;

use export::nbd::{NbdOptions, NbdServer};

use crate::memory::MemoryVolume;
use crate::{Seed, Target, seed, wire};

pub(crate) const HANDSHAKE: Target =
    Target { name: "nbd_handshake", run: run_handshake, seeds: handshake_seeds };
pub(crate) const TRANSMISSION: Target =
    Target { name: "nbd_transmission", run: run_transmission, seeds: transmission_seeds };

const FIXED_NEWSTYLE_NO_ZEROES: u32 = 3;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const STARTTLS: u32 = 5;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const LIST_META_CONTEXT: u32 = 9;
const SET_META_CONTEXT: u32 = 10;

/// The first byte says how much arrives at once.
fn chunk_bytes(first: u8) -> usize {
    [1, 7, 30, 512, 4096, 1 << 20][usize::from(first) % 6]
}

fn converse(input: Vec<u8>, chunk_bytes: usize) {
    let (io, heard) = wire::talk(input, chunk_bytes);
    let options = NbdOptions {
        export_name: "vol".into(),
        description: "a volume".into(),
        in_flight_max: 8,
        ..NbdOptions::default()
    };
    let server = NbdServer::new(io.clone(), Rc::new(MemoryVolume::new()), options);
    io.block_on(server.serve_connection(wire::peer(&io)));
    // Tasks hold the executor that holds them; without this neither would ever go.
    io.drop_tasks();
    assert_eq!(server.connections(), 0);
    assert!(heard.borrow().closed, "the connection stays open");
    assert!(heard.borrow().bytes.starts_with(b"NBDMAGICIHAVEOPT"));
}

fn run_handshake(input: &[u8]) {
    let Some((first, said)) = input.split_first() else { return };
    converse(said.to_vec(), chunk_bytes(*first));
}

fn run_transmission(input: &[u8]) {
    let Some((first, requests)) = input.split_first() else { return };
    converse([handshake(first & 1 != 0), requests.to_vec()].concat(), chunk_bytes(first >> 1));
}

/// A handshake that ends well, plain or with structured replies and all contexts.
fn handshake(structured: bool) -> Vec<u8> {
    let mut said = FIXED_NEWSTYLE_NO_ZEROES.to_be_bytes().to_vec();
    if structured {
        said.extend(option(STRUCTURED_REPLY, &[]));
        said.extend(option(SET_META_CONTEXT, &context_query(&["base:allocation", "bimetal:tier"])));
    }
    said.extend(option(GO, &info_query(&[])));
    said
}

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    let head = [&OPTION_MAGIC.to_be_bytes()[..], &kind.to_be_bytes()];
    [&head.concat()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

fn info_query(kinds: &[u16]) -> Vec<u8> {
    let mut data = string("vol");
    data.extend((kinds.len() as u16).to_be_bytes());
    data.extend(kinds.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

fn context_query(names: &[&str]) -> Vec<u8> {
    let mut data = string("vol");
    data.extend((names.len() as u32).to_be_bytes());
    data.extend(names.iter().flat_map(|name| string(name)));
    data
}

fn request(flags: u16, command: u16, at: u64, length: u32) -> Vec<u8> {
    let mut said = REQUEST_MAGIC.to_be_bytes().to_vec();
    said.extend(flags.to_be_bytes());
    said.extend(command.to_be_bytes());
    said.extend(0x1234_5678_9abc_def0u64.to_be_bytes());
    said.extend(at.to_be_bytes());
    said.extend(length.to_be_bytes());
    said
}

fn handshake_seeds() -> Vec<Seed> {
    let said = |flags: u32, options: &[Vec<u8>]| {
        [&[4][..], &flags.to_be_bytes(), &options.concat()].concat()
    };
    vec![
        seed(
            "go",
            said(3, &[option(INFO, &info_query(&[0, 1, 2, 3])), option(GO, &info_query(&[]))]),
        ),
        seed("export-name", said(1, &[option(EXPORT_NAME, b"vol"), request(0, 2, 0, 0)])),
        seed("list-and-abort", said(3, &[option(LIST, &[]), option(ABORT, &[])])),
        seed("tls", said(3, &[option(STARTTLS, &[])])),
        seed(
            "contexts",
            said(
                3,
                &[
                    option(STRUCTURED_REPLY, &[]),
                    option(LIST_META_CONTEXT, &context_query(&[])),
                    option(SET_META_CONTEXT, &context_query(&["base:", "bimetal:tier", "x"])),
                    option(GO, &info_query(&[3])),
                ],
            ),
        ),
        seed("unknown", said(3, &[option(99, b"data"), option(GO, &string("other"))])),
    ]
}

fn transmission_seeds() -> Vec<Seed> {
    let (read, write, disconnect, flush, trim, cache, zeroes, status) = (0, 1, 2, 3, 4, 5, 6, 7);
    let (fua, no_hole, dont_fragment, one, fast_zero) = (1, 2, 4, 8, 16);
    let end = request(0, disconnect, 0, 0);
    let plain = [
        [request(0, write, 4096, 1024), vec![7; 1024]].concat(),
        [request(fua, write, 512, 512), vec![8; 512]].concat(),
        request(0, read, 0, 8192),
        request(0, flush, 0, 0),
        request(fua, trim, 4096, 4096),
        request(0, cache, 0, 65536),
        request(no_hole, zeroes, 0, 4096),
        request(fast_zero, zeroes, 0, 4096),
        end.clone(),
    ];
    let structured = [
        [request(0, write, 65536, 512), vec![9; 512]].concat(),
        request(0, read, 0, 256 << 10),
        request(dont_fragment, read, 0, 8192),
        request(0, status, 0, 256 << 10),
        request(one, status, 512, 4096),
        end,
    ];
    let wrong = [
        request(0, read, 1, 1),
        request(0, read, u64::MAX, 512),
        [request(0, write, 256 << 10, 512), vec![1; 512]].concat(),
        request(0x80, 99, 0, 0),
        request(0, trim, 0, u32::MAX),
    ];
    vec![
        seed("plain", [vec![8], plain.concat()].concat()),
        seed("structured", [vec![9], structured.concat()].concat()),
        seed("piecemeal", [vec![3], structured.concat()].concat()),
        seed("wrong", [vec![9], wrong.concat()].concat()),
        seed("broken-off", [vec![8], request(0, write, 0, 65536), vec![1; 100]].concat()),
    ]
}
