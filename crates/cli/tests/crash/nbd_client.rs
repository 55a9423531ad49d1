//! A small NBD client with requests in flight, which survives the death of its server: the
//! writer and the reader of what must outlive a kill.
//!
//! Fixed newstyle, simple replies, one thread per connection that receives. No error is hidden:
//! a reply's error number is given to the caller. It trusts its server, which is ours.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Read = 0,
    Write = 1,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
}

const FUA: u16 = 1 << 0;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

/// An answer.
pub struct Reply {
    /// The cookie of its request.
    pub cookie: u32,
    /// Error number; 0 is success.
    pub error: u32,
    /// What was read.
    pub data: Vec<u8>,
}

/// A connection; answers go to the channel given at [`NbdClient::connect`], whose sender is
/// dropped when the connection ends.
pub struct NbdClient {
    stream: UnixStream,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    receiver: Option<JoinHandle<()>>,
}

impl NbdClient {
    /// Connects to the default export.
    pub fn connect(socket: &Path, replies: Sender<Reply>) -> io::Result<NbdClient> {
        let mut stream = UnixStream::connect(socket)?;
        stream.read_exact(&mut [0; 18])?;
        // Fixed newstyle and no zeroes; then the option that names the export, with no name.
        stream.write_all(&3_u32.to_be_bytes())?;
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        let mut size = [0; 8];
        stream.read_exact(&mut size)?;
        stream.read_exact(&mut [0; 2])?;
        let mut incoming = stream.try_clone()?;
        let receiver = std::thread::spawn(move || {
            while let Ok(reply) = receive(&mut incoming) {
                if replies.send(reply).is_err() {
                    return;
                }
            }
        });
        Ok(NbdClient { stream, size_bytes: u64::from_be_bytes(size), receiver: Some(receiver) })
    }

    /// Sends a request; `data` is what a write carries, `bytes` the length of the range.
    pub fn send(
        &mut self,
        command: Command,
        fua: bool,
        cookie: u32,
        at: u64,
        bytes: u32,
        data: &[u8],
    ) -> io::Result<()> {
        let reply_bytes = if command == Command::Read { bytes } else { 0 };
        let mut header = [0; 28];
        header[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[4..6].copy_from_slice(&(if fua { FUA } else { 0 }).to_be_bytes());
        header[6..8].copy_from_slice(&(command as u16).to_be_bytes());
        // The receiver must know how much data follows: the cookie tells it.
        header[8..12].copy_from_slice(&cookie.to_be_bytes());
        header[12..16].copy_from_slice(&reply_bytes.to_be_bytes());
        header[16..24].copy_from_slice(&at.to_be_bytes());
        header[24..28].copy_from_slice(&bytes.to_be_bytes());
        self.stream.write_all(&header)?;
        self.stream.write_all(data)
    }
}

impl Drop for NbdClient {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(receiver) = self.receiver.take() {
            let _ = receiver.join();
        }
    }
}

fn receive(stream: &mut UnixStream) -> io::Result<Reply> {
    let mut header = [0; 16];
    stream.read_exact(&mut header)?;
    let word = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    assert_eq!(word(0), SIMPLE_REPLY_MAGIC, "the reply stream is out of step");
    let (error, cookie, reply_bytes) = (word(4), word(8), word(12));
    let mut data = vec![0; if error == 0 { reply_bytes as usize } else { 0 }];
    stream.read_exact(&mut data)?;
    Ok(Reply { cookie, error, data })
}
