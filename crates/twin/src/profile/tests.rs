use super::*;

#[test]
fn every_profile_of_the_program_can_be_read_and_found_by_name() {
    for text in BUILT_IN {
        let profile = Profile::parse("a profile", text).unwrap();
        let found = Profile::named(&format!("{},cache=off,fresh", profile.name())).unwrap();
        assert_eq!(found.size_bytes(), profile.size_bytes());
        assert!(!found.setting().write_cache);
        assert_eq!(found.spec("x").cache_bytes, 0);
        for number in profile.part().chain().flat_map(|part| part.numbers.values()) {
            assert!(!number.source.is_empty(), "{}", profile.name());
        }
    }
}

#[test]
fn what_a_disk_reads_ahead_fits_into_its_buffer() {
    for profile in Profile::list() {
        let bytes = profile.file().volatile_bytes;
        let numbers = &profile.part().numbers;
        if let Some(segments) = numbers.get("segments") {
            // As much behind the head as before it.
            let read_bytes = segments.value * 2.0 * numbers["read_ahead_kib"].value * 1024.0;
            assert!(read_bytes <= bytes as f64, "{}: {read_bytes} of {bytes}", profile.name());
        }
    }
}

#[test]
fn a_wrong_name_choice_or_number_is_told() {
    let message = |choice: &str| Profile::named(choice).unwrap_err().to_string();
    assert!(message("wd50").contains("wd5002abys"));
    assert!(message("wd5002abys,warm").contains("warm"));
    assert!(message("wd5002abys,scale=1/0").contains("scale=1/0"));
    let small = Profile::named("wd5002abys,scale=1/64,cache=off").unwrap();
    assert_eq!(small.size_bytes(), ((500_107_862_016 / 64) >> 20) << 20);
    assert!(!small.setting().write_cache);
    let text = include_str!("../../profiles/wd5002abys.toml");
    let parsed = |text: &str| Profile::parse("mine.toml", text).unwrap_err().to_string();
    assert!(parsed(&text.replace("rpm =", "rpms =")).contains("mine.toml: rpm is missing"));
    assert!(parsed(&text.replace("kind = \"disk\"", "kind = \"tape\"")).contains("tape"));
    assert!(parsed(&text.replace("schema = 1", "schema = 2")).contains("schema 2"));
    assert!(parsed("schema").contains("mine.toml"));
    let profile = Profile::named("wd5002abys").unwrap();
    assert!(profile.with_number("rpm", 0.0).is_err());
    assert!(profile.with_number("spin", 1.0).is_err());
    assert!(profile.with_number("behind.rpm", 1.0).is_err());
    assert!(profile.with_number("rpm", 10_000.0).is_ok());
}

#[test]
fn a_profile_is_written_as_it_is_read() {
    for profile in Profile::list() {
        let text = profile.file().to_toml();
        let again = Profile::parse("again", &text).unwrap();
        assert_eq!(again.file().to_toml(), text, "{}", profile.name());
        let numbers = |profile: &Profile| {
            let parts = profile.part().chain().flat_map(|part| part.numbers.clone());
            parts.map(|(name, number)| (name, number.value)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&again), numbers(&profile));
    }
}

#[test]
fn a_file_is_found_where_a_name_is() {
    let dir = std::env::temp_dir().join(format!("bimetal-twin-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("mine.toml");
    std::fs::write(&path, include_str!("../../profiles/wd5002abys.toml")).unwrap();
    let found = Profile::find(&format!("{},cache=off", path.display())).unwrap();
    assert!(!found.setting().write_cache);
    assert_eq!(Profile::find("wd5002abys").unwrap().name(), found.name());
    std::fs::remove_dir_all(&dir).unwrap();
    let missing = Profile::find(&path.to_string_lossy()).unwrap_err().to_string();
    assert!(missing.contains("mine.toml"), "{missing}");
}
