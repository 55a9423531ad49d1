use engine::{CreateOptions, Lsn, State, Uuid, plan};
use io::DeviceInfo;
use io::units::{GIB, MIB};

use super::*;

fn superblock(role: Tier, state: State) -> Superblock {
    let drive = |size_bytes| DeviceInfo {
        path: "x".into(),
        size_bytes,
        sector_bytes: 512,
        atomic_write_bytes: 4096,
        rotational: None,
        read_only: false,
    };
    Superblock {
        role,
        volume_id: Uuid::from_random(1, 2),
        drive_ids: [Uuid::from_random(3, 4), Uuid::from_random(5, 6)],
        name: "vol0".into(),
        state,
        geometry: plan(&drive(256 * MIB), &drive(GIB), &CreateOptions::new("vol0")).unwrap(),
        generation: 3,
        session: 9,
        sequence: 4,
        log_tail: Lsn(1),
        log_session_start: Lsn(1),
        log_durable: Lsn(1),
        flush_mode: engine::FlushMode::Strict,
        cache_mode: engine::CacheMode::default(),
        alone: false,
        tuning: engine::Tuning::default(),
        wishes: engine::Wishes::default(),
        two_places: false,
        in_parts: false,
        read_only_compatible: 0,
    }
}

fn at_rest(fast: Result<Superblock, Unusable>, slow: Result<Superblock, Unusable>) -> VolumeStatus {
    VolumeStatus::at_rest("vol0", ("/f".into(), fast), ("/s".into(), slow))
}

#[test]
fn the_state_at_rest_follows_the_superblocks() {
    let pair =
        |state| at_rest(Ok(superblock(Tier::Fast, state)), Ok(superblock(Tier::Slow, state)));
    assert_eq!(pair(State::Clean).state, Health::Offline);
    assert_eq!(pair(State::Open).state, Health::Unclean);
    assert_eq!(pair(State::Opening).state, Health::Unclean);
    assert_eq!(pair(State::Creating).state, Health::Unavailable);
}

#[test]
fn a_missing_or_swapped_drive_makes_it_unavailable_and_says_what_to_do() {
    let fast = || superblock(Tier::Fast, State::Clean);
    let slow = || superblock(Tier::Slow, State::Clean);
    let missing = at_rest(Ok(fast()), Err(Unusable::missing("there is no drive at /s".into())));
    assert_eq!(missing.state, Health::Unavailable);
    assert_eq!(missing.drives.slow.state, DriveState::Missing);
    assert!(missing.status.contains("no drive at /s"));
    assert!(missing.text().contains("action: Connect"), "{}", missing.text());
    assert_eq!(at_rest(Ok(slow()), Ok(fast())).state, Health::Unavailable);
    let nothing = at_rest(Err(Unusable::missing("a".into())), Err(Unusable::faulty("b".into())));
    assert_eq!((nothing.state, nothing.size_bytes), (Health::Unavailable, None));
    assert!(nothing.text().contains("identity unknown"));
}

#[test]
fn a_cache_whose_slow_drive_has_everything_can_do_without_the_fast_one() {
    let of = |mode: engine::CacheMode, alone| {
        let mut slow = superblock(Tier::Slow, State::Open);
        slow.geometry.class = Class::Cache;
        (slow.cache_mode, slow.alone) = (mode, alone);
        at_rest(Err(Unusable::missing("there is no drive at /f".into())), Ok(slow))
    };
    for mode in [engine::CacheMode::WriteThrough, engine::CacheMode::WriteAround] {
        let status = of(mode, false);
        assert_eq!(status.state, Health::Degraded);
        let action = status.action.unwrap();
        assert!(action.contains("'bimetal serve vol0'") && !action.contains("--degraded"));
        assert!(action.contains("Bring the fast drive back first"), "{action}");
        let action = of(mode, true).action.unwrap();
        assert!(action.contains("attach-cache") && !action.contains("back first"), "{action}");
    }
    let back = of(engine::CacheMode::WriteBack, false);
    assert_eq!(back.state, Health::Unavailable);
    assert!(back.action.unwrap().contains("--degraded"));
}

#[test]
fn what_is_set_is_told_at_rest_and_that_a_cache_which_writes_back_has_something_above() {
    let mut fast = superblock(Tier::Fast, State::Clean);
    fast.geometry.class = Class::Cache;
    fast.cache_mode = engine::CacheMode::WriteBack;
    fast.tuning.quiet = true;
    fast.tuning.wear_bytes_per_day = Some(40 * GIB);
    let status = at_rest(Ok(fast.clone()), Ok(Superblock { role: Tier::Slow, ..fast }));
    let text = status.text();
    assert!(text.contains("settings: at most 40G a day to the fast drive; quiet: "), "{text}");
    assert!(text.contains("at risk: what the slow drive has not"), "{text}");
    let plain =
        at_rest(Ok(superblock(Tier::Fast, State::Clean)), Ok(superblock(Tier::Slow, State::Clean)));
    assert!(!plain.text().contains("settings") && !plain.text().contains("at risk"));
}

#[test]
fn scripts_find_the_names_they_rely_on() {
    let status =
        at_rest(Ok(superblock(Tier::Fast, State::Clean)), Ok(superblock(Tier::Slow, State::Clean)));
    let json = serde_json::to_value(&status).unwrap();
    for name in ["name", "state", "class", "size_bytes", "memory_bytes"] {
        assert!(!json[name].is_null(), "{name}");
    }
    for drive in ["fast", "slow"] {
        for field in
            ["path", "state", "reads", "read_bytes", "writes", "write_bytes", "flushes", "errors"]
        {
            assert!(!json["drives"][drive][field].is_null(), "{drive} {field}");
        }
    }
    assert_eq!(json["state"], "offline");
    let back: VolumeStatus = serde_json::from_value(json).unwrap();
    assert_eq!(back, status);
}
