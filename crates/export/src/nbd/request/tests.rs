use super::*;

const TERMS: Terms = Terms {
    size_bytes: 1 << 20,
    sector_bytes: 512,
    transfer_bytes_max: 1 << 20,
    read_only: false,
    structured: true,
    contexts: Contexts::NONE,
};

fn request(command: u16, flags: u16, at: u64, length: u32) -> Request {
    Request { flags, command, cookie: 7, at, length }
}

fn verdict(command: u16, flags: u16, at: u64, length: u32) -> Result<Work, u32> {
    request(command, flags, at, length).check(&TERMS).map_err(|refusal| refusal.error)
}

fn with_contexts() -> Terms {
    let mut terms = TERMS;
    terms.contexts.select(super::super::context::Context::Tier);
    terms
}

#[test]
fn a_request_is_read_from_its_bytes() {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&[0, 1, 0, 6]);
    bytes[8..16].copy_from_slice(&0x0102_0304_0506_0708_u64.to_be_bytes());
    bytes[16..24].copy_from_slice(&4096_u64.to_be_bytes());
    bytes[24..].copy_from_slice(&512_u32.to_be_bytes());
    let expected =
        Request { flags: 1, command: 6, cookie: 0x0102_0304_0506_0708, at: 4096, length: 512 };
    assert_eq!(Request::decode(&bytes), Some(expected));
    bytes[0] ^= 1;
    assert_eq!(Request::decode(&bytes), None);
}

#[test]
fn force_unit_access_is_taken_on_every_command() {
    for (command, length) in [
        (command::READ, 512),
        (command::WRITE, 512),
        (command::FLUSH, 0),
        (command::TRIM, 512),
        (command::CACHE, 512),
        (command::WRITE_ZEROES, 512),
    ] {
        assert!(verdict(command, command_flag::FUA, 0, length).is_ok(), "command {command}");
    }
    assert_eq!(
        verdict(command::WRITE, command_flag::FUA, 0, 512),
        Ok(Work::Write(Durability::Durable))
    );
}

#[test]
fn a_flag_of_another_command_is_refused() {
    let refused = Err(error::EINVAL);
    assert_eq!(verdict(command::WRITE, command_flag::DF, 0, 512), refused);
    assert_eq!(verdict(command::READ, command_flag::NO_HOLE, 0, 512), refused);
    assert_eq!(verdict(command::TRIM, command_flag::FAST_ZERO, 0, 512), refused);
    assert_eq!(verdict(command::FLUSH, command_flag::REQ_ONE, 0, 0), refused);
    assert_eq!(verdict(command::READ, 1 << 5, 0, 512), refused);
    let simple = Terms { structured: false, ..TERMS };
    let fragments = request(command::READ, command_flag::DF, 0, 512).check(&simple);
    assert_eq!(fragments.unwrap_err().error, error::EINVAL);
}

#[test]
fn nothing_beyond_the_end_is_touched() {
    let size = TERMS.size_bytes;
    assert!(verdict(command::READ, 0, size - 512, 512).is_ok());
    assert_eq!(verdict(command::READ, 0, size - 512, 1024), Err(error::EINVAL));
    assert_eq!(verdict(command::WRITE, 0, size, 512), Err(error::ENOSPC));
    assert_eq!(verdict(command::WRITE_ZEROES, 0, size - 512, 1024), Err(error::ENOSPC));
    assert_eq!(verdict(command::TRIM, 0, size, 512), Err(error::EINVAL));
    assert_eq!(verdict(command::READ, 0, u64::MAX - 511, 512), Err(error::EINVAL));
    assert_eq!(verdict(command::READ, 0, u64::MAX - 511, 1024), Err(error::EINVAL));
}

#[test]
fn what_is_not_aligned_or_too_long_is_refused() {
    assert_eq!(verdict(command::READ, 0, 1, 512), Err(error::EINVAL));
    assert_eq!(verdict(command::WRITE, 0, 0, 511), Err(error::EINVAL));
    let large = Terms { size_bytes: 1 << 40, ..TERMS };
    let longest = request(command::WRITE, 0, 0, PAYLOAD_BYTES_MAX);
    assert!(longest.check(&large).is_ok());
    let longer = request(command::WRITE, 0, 0, PAYLOAD_BYTES_MAX + 512);
    assert_eq!(longer.check(&large).unwrap_err().error, error::EINVAL);
    // Nothing travels with these, so their length has no such bound.
    let trim = request(command::TRIM, 0, 0, u32::MAX - 511);
    assert!(trim.check(&large).is_ok());
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let terms = Terms { read_only: true, ..TERMS };
    for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
        let refusal = request(command, 0, 0, 512).check(&terms).unwrap_err();
        assert_eq!(refusal.error, error::EPERM);
    }
    assert!(request(command::READ, 0, 0, 512).check(&terms).is_ok());
    assert!(request(command::FLUSH, 0, 0, 0).check(&terms).is_ok());
}

#[test]
fn only_zeros_that_may_be_holes_are_fast() {
    let both = command_flag::NO_HOLE | command_flag::FAST_ZERO;
    assert_eq!(verdict(command::WRITE_ZEROES, both, 0, 512), Err(error::ENOTSUP));
    let fast = verdict(command::WRITE_ZEROES, command_flag::FAST_ZERO, 0, 512);
    assert_eq!(fast, Ok(Work::WriteZeroes(ZeroMode::Deallocate, Durability::Volatile)));
    let kept = verdict(command::WRITE_ZEROES, command_flag::NO_HOLE, 0, 512);
    assert_eq!(kept, Ok(Work::WriteZeroes(ZeroMode::Allocate, Durability::Volatile)));
}

#[test]
fn block_status_wants_a_context_and_a_length() {
    assert_eq!(verdict(command::BLOCK_STATUS, 0, 0, 512), Err(error::EINVAL));
    let terms = with_contexts();
    assert!(request(command::BLOCK_STATUS, 0, 0, 512).check(&terms).is_ok());
    assert!(request(command::BLOCK_STATUS, 0, 0, 0).check(&terms).is_err());
}

#[test]
fn an_accepted_request_lies_inside_the_export_whatever_the_bytes_were() {
    // A xorshift generator: the same thousands of requests in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let terms = with_contexts();
    let mut accepted = 0;
    for _ in 0..200_000 {
        let near = random() % 3;
        let at = match near {
            0 => random(),
            1 => terms.size_bytes.wrapping_sub(random() % 8192) & !511,
            _ => (random() % terms.size_bytes) & !511,
        };
        let length = if random() % 2 == 0 { random() as u32 } else { (random() % 16 * 512) as u32 };
        let request = request((random() % 10) as u16, (random() % 40) as u16, at, length);
        let Ok(work) = request.check(&terms) else { continue };
        accepted += 1;
        if matches!(work, Work::Disconnect) {
            continue;
        }
        assert!(at.checked_add(u64::from(length)).unwrap() <= terms.size_bytes, "{request:?}");
        assert!(at.is_multiple_of(512) && length.is_multiple_of(512), "{request:?}");
    }
    assert!(accepted > 1000, "the generator must also make good requests");
}
