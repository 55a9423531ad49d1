//! Help that fits every terminal: what stands below the options of a command is written here in lines of
//! the source, and becomes paragraphs that the terminal's own width breaks.

use clap::Command;

/// The command and all below it, with paragraphs of one line each.
pub fn flowing(command: Command) -> Command {
    let command = match command.get_after_help().map(ToString::to_string) {
        Some(text) => command.after_help(paragraphs(&text)),
        None => command,
    };
    command.mut_subcommands(flowing)
}

/// Joins lines of prose. Indented lines (examples, tables), what comes behind them, and empty lines
/// stay where they are.
fn paragraphs(text: &str) -> String {
    let mut flowed = String::new();
    let mut in_prose = false;
    for line in text.lines() {
        let is_prose = line.starts_with(|first: char| !first.is_whitespace());
        if !flowed.is_empty() {
            flowed.push(if in_prose && is_prose { ' ' } else { '\n' });
        }
        flowed += line;
        in_prose = is_prose;
    }
    flowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_flows_and_examples_stay() {
        let text = "Examples:\n  one --two\n  three\n\nA sentence\nthat goes on.\n\nAnother.";
        let flowed = "Examples:\n  one --two\n  three\n\nA sentence that goes on.\n\nAnother.";
        assert_eq!(paragraphs(text), flowed);
    }

    #[test]
    fn commands_below_flow_too() {
        let below = Command::new("below").after_help("one\ntwo");
        let command = flowing(Command::new("above").subcommand(below));
        let help = command.find_subcommand("below").unwrap().get_after_help().unwrap();
        assert_eq!(help.to_string(), "one two");
    }
}
