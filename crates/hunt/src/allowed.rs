//! What may go wrong in a hunt, by name.

/// What may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// Power fails.
    pub cuts: bool,
    /// The process dies.
    pub kills: bool,
    /// Requests to drives fail, drives die or fill up.
    pub errors: bool,
    /// Drives stall.
    pub stalls: bool,
    /// What lies on the drives rots.
    pub rot: bool,
    /// Older copies of drives are offered.
    pub old: bool,
    /// A drive is lost, and the other one must tell the truth alone.
    pub lost: bool,
    /// Drives lie about flushes, lose or misplace writes, and rot while they are read. Then
    /// nothing is promised, but that nothing panics or hangs.
    pub lies: bool,
}

impl Allowed {
    /// Everything.
    pub const ALL: Allowed = Allowed {
        cuts: true,
        kills: true,
        errors: true,
        stalls: true,
        rot: true,
        old: true,
        lost: true,
        lies: true,
    };
    /// Nothing.
    pub const NONE: Allowed = Allowed {
        cuts: false,
        kills: false,
        errors: false,
        stalls: false,
        rot: false,
        old: false,
        lost: false,
        lies: false,
    };

    /// The names of all, in the order of the fields.
    pub const NAMES: [&str; 8] =
        ["cuts", "kills", "errors", "stalls", "rot", "old", "lost", "lies"];

    fn fields(&mut self) -> [&mut bool; 8] {
        [
            &mut self.cuts,
            &mut self.kills,
            &mut self.errors,
            &mut self.stalls,
            &mut self.rot,
            &mut self.old,
            &mut self.lost,
            &mut self.lies,
        ]
    }

    /// Those named; `None` when a name is not known.
    pub fn from_names<'a>(names: impl Iterator<Item = &'a str>) -> Option<Allowed> {
        let mut allowed = Allowed::NONE;
        for name in names {
            match name {
                "all" => allowed = Allowed::ALL,
                "none" => allowed = Allowed::NONE,
                name => {
                    let place = Allowed::NAMES.iter().position(|known| *known == name)?;
                    *allowed.fields()[place] = true;
                }
            }
        }
        Some(allowed)
    }

    /// As a list of names.
    pub fn names(mut self) -> String {
        if self == Allowed::ALL {
            return "all".into();
        }
        let fields = self.fields();
        let on: Vec<&str> =
            Allowed::NAMES.into_iter().zip(fields).filter(|(_, on)| **on).map(|(n, _)| n).collect();
        if on.is_empty() { "none".into() } else { on.join(",") }
    }
}
