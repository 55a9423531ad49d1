//! Tables of the published matrix beside what the twins do, with the profiles as they are in the
//! tree at this moment: for fitting numbers by hand. `cargo run --example fit -- re3-wcoff`

use lab::compare::thomas_krenn::{TABLES, play};
use lab::reference;
use twin::Profile;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let rows = reference::rows();
    for (table, choice) in TABLES {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == table) {
            continue;
        }
        let own: Vec<_> = rows
            .iter()
            .filter(|row| row.config.as_deref() == Some(table) && row.line().is_some())
            .collect();
        let begun = std::time::Instant::now();
        let (name, words) = choice.split_once(',').unwrap_or((choice, ""));
        let path = format!("{}/../twin/profiles/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("a profile in the tree");
        let profile = Profile::parse(&path, &text).and_then(|profile| profile.choose(words));
        let profile = match profile {
            Ok(profile) => profile,
            Err(error) => {
                println!("{table}: {error}");
                continue;
            }
        };
        let figures = play(&profile, &own);
        println!("## {table}: {choice}, {:.1} s", begun.elapsed().as_secs_f64());
        for test in 1..=10 {
            print!("t{test:02}");
            for direction in ["read", "write"] {
                for jobs in [1, 4, 64] {
                    let row = own.iter().find(|row| {
                        row.line() == Some(test)
                            && row.jobs == Some(jobs)
                            && row.direction == direction
                    });
                    let Some(row) = row else { continue };
                    let figure = figures.iter().find(|(id, _)| *id == row.id).unwrap().1;
                    let (published, _) = row.published().unwrap();
                    let error = (figure / published - 1.0) * 100.0;
                    print!(" |{published:9.1} {figure:9.1} {error:+5.0}%");
                }
            }
            println!();
        }
    }
}
