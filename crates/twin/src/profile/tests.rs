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
fn a_wrong_name_choice_or_number_is_told() {
    let message = |choice: &str| Profile::named(choice).unwrap_err().to_string();
    assert!(message("wd50").contains("wd5002abys"));
    assert!(message("wd5002abys,warm").contains("warm"));
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
