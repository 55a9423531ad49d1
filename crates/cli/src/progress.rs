//! A progress bar on standard error, only where a person is watching.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over bytes.
pub fn bar(message: &str) -> ProgressBar {
    styled(message, "{msg} {wide_bar} {bytes}/{total_bytes} {eta}")
}

/// A bar over steps.
pub fn steps(message: &str) -> ProgressBar {
    styled(message, "{msg} {wide_bar} {percent}% {eta}")
}

/// A spinner that counts what has no known end.
pub fn counter(message: &str) -> ProgressBar {
    let bar = styled(message, "{spinner} {pos} {msg} ({per_sec})");
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}

/// Hides itself when standard error is not a terminal.
fn styled(message: &str, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    } else {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template(template).expect("a constant template is valid");
    bar.set_style(style);
    bar.set_message(message.to_owned());
    bar
}
