use super::*;

#[test]
fn a_star_stands_for_any_text() {
    assert!(fits("tk-*-t01-*-j4", "tk-re3-wcoff-t01-rd-j4"));
    assert!(!fits("tk-*-t01-*-j4", "tk-re3-wcoff-t01-rd-j64"));
    assert!(fits("*", "") && fits("a", "a") && !fits("a", "ab") && !fits("a*b", "a"));
}

#[test]
fn twins_are_fitted_to_rows_that_may_be_and_to_few_of_those_they_explain() {
    let allowed: BTreeSet<String> = reference::calibration().into_iter().collect();
    let rows = reference::rows();
    for profile in Profile::list() {
        let numbers: Vec<_> = profile.part().chain().flat_map(|part| part.numbers.iter()).collect();
        let fitted = numbers.iter().filter(|(_, number)| number.is_told_by_rows()).count();
        for (name, number) in &numbers {
            for row in &number.rows {
                assert!(allowed.contains(row), "{}: {name} is fitted to {row}", profile.name());
            }
        }
        let explains = |row: &&Row| profile.explains().iter().any(|pattern| fits(pattern, &row.id));
        let explained = rows.iter().filter(explains).count();
        let matrix = profile.explains().iter().any(|pattern| pattern.starts_with("tk-"));
        assert!(!matrix || fitted * 3 <= explained, "{}: {fitted} for {explained}", profile.name());
    }
}

#[test]
fn every_table_and_device_has_its_twin() {
    for (_, choice) in thomas_krenn::TABLES.iter().chain(drives::DEVICES) {
        assert!(Profile::named(choice).is_ok(), "{choice}");
    }
}

#[test]
fn every_experiment_has_its_place_and_its_rows() {
    let rows = reference::rows();
    for (name, place, ids) in volumes::EXPERIMENTS {
        assert!(crate::experiment::named(name).is_some(), "{name}");
        assert!(volumes::exists(place), "{place}");
        assert!(ids.iter().all(|id| rows.iter().any(|row| row.id == *id)), "{place}");
        assert!(ids.iter().all(|id| rows.iter().filter(|row| row.id == *id).all(|row| {
            drives::device(row).is_none_or(|device| drives::DEVICES.iter().all(|d| d.0 != device))
        })));
    }
}

#[test]
fn the_hybrid_rows_are_answered_by_the_engine() {
    let figures = compare(Some("admin-hybrid"), &|_, _| ());
    let of = |id: &str| figures.iter().find(|figure| figure.id == id).unwrap();
    assert!(of("ah-boot-hybrid").twin.as_deref().unwrap().starts_with("hybrid:"));
    for id in ["ah-boot-hybrid", "ah-boot-hdd", "ah-boot-ssd", "ah-rate-cached"] {
        assert!(of(id).measured.is_some(), "{id}");
    }
    assert_eq!(of("ah-faults-second").measured, Some(0.0));
    assert_eq!(of("ah-boot-hdd").within, Some(true));
}

#[test]
fn a_figure_inside_its_range_has_no_error() {
    let row = |id: &str| reference::rows().into_iter().find(|row| row.id == id).unwrap();
    let range = row("at-8g-run1");
    assert_eq!(error_of(&range, range.published().unwrap(), 8.0), 0.0);
    assert!((error_of(&range, range.published().unwrap(), 6.3) + 0.1).abs() < 1e-9);
    let bound = row("nr-sata-uniform-bound");
    assert_eq!(error_of(&bound, bound.published().unwrap(), 12.0), 0.0);
    assert!(error_of(&bound, bound.published().unwrap(), 16.0) > 0.0);
}

#[test]
fn the_disks_table_is_explained_and_sums_up() {
    let rows = reference::rows();
    let own: Vec<&Row> =
        rows.iter().filter(|row| row.config.as_deref() == Some("re3-wcoff")).collect();
    let profile = Profile::named("wd5002abys,cache=off").unwrap();
    let measured = thomas_krenn::play(&profile, &own);
    let judge = Judge::new(&rows);
    let figures: Vec<Figure> = own
        .iter()
        .map(|row| {
            let found = measured.iter().find(|(id, _)| *id == row.id).unwrap();
            judge.figure(row, Some(&("wd5002abys", found.1)))
        })
        .collect();
    let all: Vec<&Figure> = figures.iter().collect();
    let summary = summary("re3".to_owned(), &all);
    assert_eq!(summary.calibrated + summary.predicted + summary.unexplained, 40);
    assert_eq!(summary.calibrated, summary.calibrated_within);
    assert!(summary.predicted_within * 100 >= summary.predicted * 95, "{summary:?}");
    assert!(summary.mean_error.unwrap() < 0.025, "{summary:?}");
}
