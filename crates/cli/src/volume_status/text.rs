//! A volume's status as people read it.

use std::fmt::Write;

use engine::CacheMode;
use io::units::human_bytes;

use super::{RequestStatus, VolumeStatus};
use crate::table::{Align, Table};

impl VolumeStatus {
    /// The volume in the manner of `zpool status`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |label: &str, value: &str| {
            writeln!(text, "{label:>8}: {value}").expect("a string takes any text");
        };
        let unknown = || "identity unknown".to_owned();
        line("volume", &format!("{}  {}", self.name, self.volume.clone().unwrap_or_else(unknown)));
        line("state", self.state.word());
        line("status", &self.status);
        line("action", self.action.as_deref().unwrap_or("none needed"));
        if let (Some(size), Some(class), Some(extent)) =
            (self.size_bytes, &self.class, self.extent_bytes)
        {
            let memory = self.memory_bytes.map(human_bytes).unwrap_or_default();
            let (size, extent) = (human_bytes(size), human_bytes(extent));
            line("size", &format!("{size}, class {class}, extents of {extent}, {memory} of RAM"));
        }
        if let Some(mode) = &self.mode {
            let dirty = self.dirty_bytes.map(|bytes| format!(", {} dirty", human_bytes(bytes)));
            line("cache", &format!("{mode}{}", dirty.unwrap_or_default()));
        }
        if let Some(durability) = &self.durability {
            line("flushes", &durability.text());
            durability.behind_text().iter().for_each(|text| line("writes", text));
        }
        self.settings.and_then(|set| set.text()).iter().for_each(|text| line("settings", text));
        if let Some(server) = &self.server {
            line("server", &format!("process {}, {}", server.pid, server.io));
            server.uris.iter().for_each(|uri| line("nbd", uri));
            if let Some(file) = &server.fuse_file {
                line("file", &file.display().to_string());
            }
            if let Some(path) = &server.vhost_user {
                line("vhost", &path.display().to_string());
            }
            if let Some(path) = &server.ublk {
                let uncopied = match server.ublk_uncopied_reads {
                    Some(count) => format!(", {count} reads without a copy"),
                    None => String::new(),
                };
                line("device", &format!("{}{uncopied}", path.display()));
            }
        }
        if let Some(recovery) = &self.recovery
            && recovery.unclean
        {
            let ms = recovery.duration_us / 1000;
            let (records, bytes) = (recovery.records, human_bytes(recovery.log_bytes));
            line("recovery", &format!("{records} records, {bytes} of log replayed in {ms} ms"));
        }
        match &self.at_risk {
            Some(risk) => line("at risk", &risk.text()),
            // A cache that writes back is closed without bringing everything home.
            None if self.mode.as_deref() == Some(CacheMode::WriteBack.name()) => {
                line(
                    "at risk",
                    "what the slow drive has not: 'bimetal map' reads how much that is",
                );
            }
            None => {}
        }
        if let (Some(log), true) = (&self.log, self.server.is_some()) {
            let (used, size) = (human_bytes(log.used_bytes), human_bytes(log.size_bytes));
            line("log", &format!("{used} of {size} used, {} dirty", human_bytes(log.dirty_bytes)));
        }
        if let Some(moves) = &self.moves {
            let [destaged, promoted, demoted] =
                [moves.destaged_bytes, moves.promoted_bytes, moves.demoted_bytes].map(human_bytes);
            let mut text = format!("{destaged} destaged, {promoted} promoted, {demoted} demoted");
            for (bytes, deed) in
                [(moves.cleaned_bytes, "cleaned"), (moves.carried_bytes, "carried")]
            {
                if bytes > 0 {
                    text += &format!(", {} {deed}", human_bytes(bytes));
                }
            }
            line("moves", &text);
        }
        if let Some(policy) = &self.policy {
            line("stage", &policy.stage_text());
            line("placement", &policy.decision_text());
            policy.ghost_text().iter().for_each(|text| line("sizes", text));
            policy.wake_text().iter().for_each(|text| line("quiet", text));
        }
        if let Some(served) = &self.served {
            let [log, fast, stage, slow, hole] = [
                served.log_bytes,
                served.fast_bytes,
                served.stage_bytes,
                served.slow_bytes,
                served.hole_bytes,
            ]
            .map(human_bytes);
            let text = format!("{log} log, {fast} fast, {stage} stage, {slow} slow, {hole} holes");
            line("served", &text);
        }
        text.push('\n');
        text.push_str(&self.drive_table());
        if let Some(requests) = &self.requests {
            text.push('\n');
            text.push_str(&request_table(requests));
        }
        text
    }

    fn drive_table(&self) -> String {
        let mut table = Table::new(&[
            ("DRIVE", Align::Left),
            ("STATE", Align::Left),
            ("SIZE", Align::Right),
            ("FREE", Align::Right),
            ("READS", Align::Right),
            ("READ", Align::Right),
            ("WRITES", Align::Right),
            ("WRITTEN", Align::Right),
            ("FLUSHES", Align::Right),
            ("ERRORS", Align::Right),
            ("PATH", Align::Left),
        ]);
        let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), human_bytes);
        let mut problems = String::new();
        for (role, drive) in [("fast", &self.drives.fast), ("slow", &self.drives.slow)] {
            table.row([
                role.to_owned(),
                drive.state.word().to_owned(),
                bytes(drive.size_bytes),
                bytes(drive.free_bytes),
                drive.reads.to_string(),
                human_bytes(drive.read_bytes),
                drive.writes.to_string(),
                human_bytes(drive.write_bytes),
                drive.flushes.to_string(),
                drive.errors.to_string(),
                drive.path.display().to_string(),
            ]);
            if let Some(problem) = &drive.problem {
                writeln!(problems, "{role}: {problem}").expect("a string takes any text");
            }
        }
        table.render() + &problems
    }
}

fn request_table(requests: &RequestStatus) -> String {
    let mut table = Table::new(&[
        ("REQUESTS", Align::Left),
        ("COUNT", Align::Right),
        ("BYTES", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("MAX", Align::Right),
        ("ERRORS", Align::Right),
    ]);
    let kinds = [
        ("read", requests.read),
        ("write", requests.write),
        ("trim", requests.trim),
        ("zero", requests.zero),
        ("flush", requests.flush),
    ];
    for (name, kind) in kinds {
        table.row([
            name.to_owned(),
            kind.count.to_string(),
            human_bytes(kind.bytes),
            format!("{} us", kind.p50_us),
            format!("{} us", kind.p99_us),
            format!("{} us", kind.max_us),
            kind.errors.to_string(),
        ]);
    }
    table.render()
}
