use super::*;

fn parse(text: &str) -> Result<Trace, TraceError> {
    Trace::parse(Path::new("x"), text.as_bytes())
}

fn event(at_us: u64, deed: Deed, offset: u64, length: u64) -> Event {
    Event { at_us, deed, offset, length }
}

#[test]
fn plain_lines_are_read_with_comments_and_all_deeds() {
    let trace = parse("# made by hand\n100,R,4096,512\n101,W,0,8192\n150,F,0,0\n160,D,4096,4096\n");
    let trace = trace.unwrap();
    assert_eq!(trace.format, Format::Csv);
    let expected = [
        event(0, Deed::Read, 4096, 512),
        event(1, Deed::Write, 0, 8192),
        event(50, Deed::Flush, 0, 0),
        event(60, Deed::Discard, 4096, 4096),
    ];
    assert_eq!(trace.events, expected);
}

#[test]
fn fio_logs_of_both_versions_are_read() {
    let two = "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb read 0 4096\n\
               /dev/sdb wait 400 0\n/dev/sdb wait 100 0\n/dev/sdb write 8192 512\n/dev/sdb sync 0 0\n/dev/sdb close\n";
    let expected = [
        event(0, Deed::Read, 0, 4096),
        event(500, Deed::Write, 8192, 512),
        event(500, Deed::Flush, 0, 0),
    ];
    assert_eq!(parse(two).unwrap().events, expected);
    let three = "fio version 3 iolog\n0 f add\n7 f open\n10 f read 0 4096\n\
                 510 f write 8192 512\n510 f datasync 0 0\n600 f close\n";
    assert_eq!(parse(three).unwrap().events, expected);
}

#[test]
fn blkparse_gives_what_was_queued_or_else_issued() {
    let both = "  8,0    1        1     0.000000000   913  Q   R 2048 + 8 [fio]\n\
                  8,0    1        2     0.000010000   913  D   R 2048 + 8 [fio]\n\
                  8,0    1        3     0.000020000   913  C   R 2048 + 8 [0]\n\
                  8,0    0        4     1.500000000   913  Q  WS 16 + 16 [fio]\n\
                  8,0    0        5     1.600000000   913  Q  FWS 0 [fio]\n\
                  8,0    0        6     1.700000000   913  Q  DS 32 + 8 [fio]\n\
                CPU0 (sda):\n Reads Queued:           1,        4KiB\n";
    let expected = [
        event(0, Deed::Read, 1 << 20, 4096),
        event(1_500_000, Deed::Write, 8192, 8192),
        event(1_600_000, Deed::Flush, 0, 0),
        event(1_700_000, Deed::Discard, 16384, 4096),
    ];
    assert_eq!(parse(both).unwrap().events, expected);
    let issued: String =
        both.lines().filter(|line| !line.contains(" Q ")).map(|line| format!("{line}\n")).collect();
    assert_eq!(parse(&issued).unwrap().events, [event(0, Deed::Read, 1 << 20, 4096)]);
}

#[test]
fn an_event_of_blkparse_without_its_time_is_an_error_that_names_the_line() {
    let cut = "  8,0    1        1     0.000000000   913  Q   R 2048 + 8 [fio]\n\
               \x20 8,0    1        2     0.00001   913  Q   R 2056 + 8 [fio]\n";
    let said = parse(cut).unwrap_err().to_string();
    assert!(said.contains("line 2") && said.contains("time"), "{said}");
}

#[test]
fn flushes_that_come_with_data_are_asked_for() {
    let text = "8,0    0        4     1.500000000   913  Q  FWFS 16 + 16 [jbd2]\n\
                8,0    0        5     1.600000000   913  Q  WFS 32 + 8 [jbd2]\n\
                8,0    0        6     1.700000000   913  Q  FWS 48 + 8 [jbd2]\n";
    let (first, second, third) = (0, 100_000, 200_000);
    let flush = |at_us| event(at_us, Deed::Flush, 0, 0);
    let expected = [
        flush(first),
        event(first, Deed::Write, 8192, 8192),
        flush(first),
        event(second, Deed::Write, 16384, 4096),
        flush(second),
        flush(third),
        event(third, Deed::Write, 24576, 4096),
    ];
    assert_eq!(parse(text).unwrap().events, expected);
    let issued = parse(&text.replace(" Q ", " D ")).unwrap();
    assert_eq!(issued.events, expected);
}

#[test]
fn msr_lines_are_read() {
    let text = "128166372003061629,hm,0,Read,383496192,32768,413\n\
                128166372016382155,hm,0,Write,2822144,4096,1000\n";
    let trace = parse(text).unwrap();
    assert_eq!(trace.format, Format::Msr);
    assert_eq!(trace.events[0], event(0, Deed::Read, 383_496_192, 32768));
    assert_eq!(trace.events[1], event(1_332_053, Deed::Write, 2_822_144, 4096));
}

#[test]
fn a_line_that_is_wrong_is_named() {
    let error = parse("0,R,0,512\n5,X,0,512\n").unwrap_err();
    assert_eq!(error.to_string(), "x, line 2: 'X' is no operation (R, W, F, D)");
    let error = parse("0,R,0,512\n5,R,18446744073709551615,512\n").unwrap_err();
    assert!(matches!(error, TraceError::Line { line: 2, problem: Problem::Range(..), .. }));
    let error = parse("0,R,0,512\n5,W,0,1000000000000000\n").unwrap_err();
    assert!(matches!(error, TraceError::Line { line: 2, problem: Problem::Long(_), .. }));
    assert!(matches!(parse("hello\n").unwrap_err(), TraceError::Unknown { .. }));
    assert!(matches!(parse("# nothing\n").unwrap_err(), TraceError::Empty { .. }));
    assert!(matches!(parse("fio version 2 iolog\n").unwrap_err(), TraceError::Empty { .. }));
}

#[test]
fn a_compressed_file_is_read_as_what_it_holds() {
    let text = b"0,R,0,512\n7,W,4096,512\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    let frame =
        ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
    assert!(frame.starts_with(&frames::MAGIC));
    std::fs::write(file.path(), &frame).unwrap();
    let trace = Trace::read(file.path()).unwrap();
    assert_eq!(trace.events[1], event(7, Deed::Write, 4096, 512));
    // Joined to another one, with something between that is to be skipped.
    let more = ruzstd::encoding::compress_to_vec(
        &b"9,R,8192,512\n"[..],
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    let skipped = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    std::fs::write(file.path(), [&skipped[..], &frame, &skipped, &more].concat()).unwrap();
    let trace = Trace::read(file.path()).unwrap();
    assert_eq!(trace.events.len(), 3);
    assert_eq!(trace.events[2], event(9, Deed::Read, 8192, 512));
    for wrong in [
        frames::MAGIC.to_vec(),
        [&frame[..], b"rubbish"].concat(),
        [&frame[..], &skipped[..9]].concat(),
        [&frame[..], &more[..more.len() - 1]].concat(),
    ] {
        std::fs::write(file.path(), wrong).unwrap();
        assert!(matches!(Trace::read(file.path()), Err(TraceError::File { .. })));
    }
}

#[test]
fn a_footprint_counts_each_place_once() {
    let text = "0,R,0,4096\n1,R,0,8192\n2,W,131072,4096\n3,F,0,0\n9,D,0,4096\n";
    let sum = Footprint::of(&parse(text).unwrap().events, 128 << 10);
    assert_eq!((sum.reads, sum.writes, sum.flushes, sum.discards), (2, 1, 1, 1));
    assert_eq!((sum.touched_bytes, sum.touched_extents, sum.duration_us), (12288, 2, 9));
}

#[test]
fn what_is_written_is_read_again_in_each_format() {
    let events = [
        event(0, Deed::Read, 1 << 40, 4096),
        event(3, Deed::Write, 512, 1 << 20),
        event(3, Deed::Flush, 0, 0),
        event(9_000_000, Deed::Discard, 8192, 4096),
        event(9_000_001, Deed::Read, 12288, 512),
    ];
    for format in [Format::Csv, Format::Iolog3, Format::Compact] {
        let mut writer = Writer::new(Vec::new(), format).unwrap();
        writer.add(&events[..2]).unwrap();
        writer.add(&events[2..]).unwrap();
        let bytes = writer.finish(9_000_002).unwrap();
        let trace = Trace::parse(Path::new("x"), &bytes[..]).unwrap();
        assert_eq!((trace.format, &trace.events[..]), (format, &events[..]));
        assert!(format != Format::Compact || bytes.len() < 60, "{}", bytes.len());
    }
    assert!(Writer::new(Vec::new(), Format::Msr).is_err());
}

#[test]
fn a_compact_trace_may_end_anywhere_and_be_damaged_anyhow() {
    let mut writer = Writer::new(Vec::new(), Format::Compact).unwrap();
    let events: Vec<Event> =
        (0..50u64).map(|n| event(n * n * 1000, Deed::Read, n << (n % 40), 4096)).collect();
    writer.add(&events).unwrap();
    let bytes = writer.finish(0).unwrap();
    let head = compact::HEAD.len();
    for end in head..bytes.len() {
        match Trace::parse(Path::new("x"), &bytes[..end]) {
            Ok(trace) => assert!(trace.events.len() < 50),
            Err(error) => assert!(matches!(error, TraceError::Empty { .. }), "{error}"),
        }
    }
    for at in head..bytes.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= mask;
            // Whatever it says, it ends.
            let _ = Trace::parse(Path::new("x"), &damaged[..]);
        }
    }
    let long = [compact::HEAD, b"R", &[0xff; 12]].concat();
    let error = Trace::parse(Path::new("x"), &long[..]).unwrap_err().to_string();
    assert!(error.contains("longer than 64 bits"), "{error}");
}
