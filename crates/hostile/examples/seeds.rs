//! Writes the seeds of every target to `fuzz/seeds`, where they are committed.
//!
//!     cargo run -p bimetal-hostile --example seeds

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for target in hostile::TARGETS {
        let dir = root.join(target.name);
        fs::create_dir_all(&dir)?;
        for (name, bytes) in (target.seeds)() {
            fs::write(dir.join(name), bytes)?;
        }
    }
    Ok(())
}
