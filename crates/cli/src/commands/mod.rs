//! One file per subcommand: its flags, its help with examples, and what it does.

pub mod attach;
pub mod attach_cache;
pub mod check;
pub mod create;
pub mod destroy;
pub mod detach;
pub mod export;
pub mod hunt;
pub mod import;
pub mod iostat;
pub mod lab;
pub mod list;
pub mod lost;
pub mod map;
pub mod probe;
pub mod scan;
pub mod serve;
pub mod set;
pub mod status;
pub mod trace;
pub mod twin;
pub mod warm;
pub mod r#where;
