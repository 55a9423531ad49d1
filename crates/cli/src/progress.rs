//! A progress bar on standard error, only where a person is watching.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over bytes that hides itself when standard error is not a terminal.
pub fn bar(message: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    } else {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {eta}")
        .expect("a constant template is valid");
    bar.set_style(style);
    bar.set_message(message.to_owned());
    bar
}
