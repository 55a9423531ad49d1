//! Charts as SVG. Colours are the page's variables, so that one drawing is light and dark.

use maud::{Markup, html};

use super::axis::{Axis, Scale, label};
use crate::experiment::{Chart, Series, Shape};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 56.0;
/// Colours of the page there are.
const COLOURS: usize = 7;
/// Height of one bar and the gap below a group of bars.
const BAR: f64 = 22.0;
const GROUP_GAP: f64 = 14.0;
/// The name of a group stands above it: beside it no room would do for every name on every screen.
const NAME: f64 = 26.0;
/// Room for the value behind the longest bar.
const VALUE: f64 = 96.0;
/// Where bars begin.
const BAR_LEFT: f64 = 8.0;
/// Lines of text at marks.
const MARK_LINE: f64 = 21.0;
/// Points of a line at most: more cannot be told apart at this width.
const POINTS_MAX: usize = 720;

/// The colour of each series: a published one has that of the measured one it belongs to.
fn colours(chart: &Chart) -> Vec<usize> {
    let mut next = 0;
    let mut measured: Vec<(&str, usize)> = Vec::new();
    chart
        .series
        .iter()
        .map(|series| {
            let of = |known: &&(&str, usize)| series.name.starts_with(known.0);
            let partner = measured.iter().rev().find(of).map(|known| known.1);
            match partner.filter(|_| series.published) {
                Some(colour) => colour,
                None => {
                    next += 1;
                    measured.push((&series.name, next));
                    next
                }
            }
        })
        .map(|colour| (colour - 1) % COLOURS + 1)
        .collect()
}

/// A chart with its legend.
pub(super) fn figure(chart: &Chart) -> Markup {
    let colours = colours(chart);
    let bars = chart.series.iter().any(|series| series.shape == Shape::Bars);
    html! {
        figure {
            figcaption { (chart.title) }
            div.legend {
                @for (series, colour) in chart.series.iter().zip(&colours) {
                    span.key {
                        span class={ "swatch c" (colour) @if series.published { " published" } } {}
                        (series.name)
                    }
                }
            }
            @if bars { (bar_chart(chart, &colours)) } @else { (line_chart(chart, &colours)) }
        }
    }
}

fn line_chart(chart: &Chart, colours: &[usize]) -> Markup {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    let along = if chart.x_nines { Scale::Nines } else { Scale::log(chart.x_log) };
    let x = Axis::new(points().map(|point| point.0), along, false, (LEFT, right));
    let y = Axis::new(points().map(|point| point.1), Scale::log(chart.y_log), true, (bottom, TOP));
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(chart.title) {
            @for (value, text) in y.ticks() {
                @let at = round(y.place(value));
                line.grid x1=(LEFT) x2=(right) y1=(at) y2=(at) {}
                text.tick x=(LEFT - 8.0) y=(at + 4.0) text-anchor="end" { (text) }
            }
            @for (value, text) in x.ticks() {
                @let at = round(x.place(value));
                line.tickmark x1=(at) x2=(at) y1=(bottom) y2=(bottom + 5.0) {}
                // The last would hang over the edge.
                @let (anchor, at) = if at > right - 16.0 { ("end", WIDTH) } else { ("middle", at) };
                text.tick x=(at) y=(bottom + 19.0) text-anchor=(anchor) { (text) }
            }
            line.axis x1=(LEFT) x2=(right) y1=(bottom) y2=(bottom) {}
            @for (number, mark) in chart.marks.iter().enumerate() {
                @let at = round(x.place(mark.at));
                // Neighbours do not write over each other.
                @let high = TOP + 14.0 + MARK_LINE * (number % 4) as f64;
                @let (anchor, shift) = if at > WIDTH * 0.7 { ("end", -6.0) } else { ("start", 6.0) };
                line.mark x1=(at) x2=(at) y1=(TOP) y2=(bottom) {}
                text.marktext x=(at + shift) y=(high) text-anchor=(anchor) { (mark.label) }
            }
            @for (series, colour) in chart.series.iter().zip(colours) {
                (curve(series, *colour, &x, &y))
            }
            text.axisname x=((LEFT + right) / 2.0) y=(HEIGHT - 8.0) text-anchor="middle" { (chart.x) }
            text.axisname x=(BAR_LEFT) y=(TOP - 18.0) { (chart.y) }
        }
    }
}

fn curve(series: &Series, colour: usize, x: &Axis, y: &Axis) -> Markup {
    let place = |point: &(f64, f64)| (round(x.place(point.0)), round(y.place(point.1)));
    // Of many points each share is drawn by its mean.
    let each = series.points.len().div_ceil(POINTS_MAX).max(1);
    let mean = |part: &[(f64, f64)]| {
        let count = part.len() as f64;
        let sum = part.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / count, sum.1 / count)
    };
    let places: Vec<(f64, f64)> =
        series.points.chunks(each).map(|part| place(&mean(part))).collect();
    let path: String = places
        .iter()
        .enumerate()
        .map(|(index, (x, y))| format!("{}{x} {y}", if index == 0 { "M" } else { "L" }))
        .collect();
    let dots = series.shape == Shape::Dots || places.len() <= 12;
    html! {
        g class={ "c" (colour) @if series.published { " published" } } {
            @if series.shape == Shape::Line { path.curve d=(path) {} }
            @if dots {
                @for ((cx, cy), point) in places.iter().zip(&series.points) {
                    circle.dot cx=(cx) cy=(cy) r=(if series.published || series.shape == Shape::Dots { 5.5 } else { 4.0 }) {
                        title { (series.name) ": " (label(point.0)) ", " (label(point.1)) }
                    }
                }
            }
        }
    }
}

/// Bars lie, so that their names can be read on any screen; those of one name stand together.
fn bar_chart(chart: &Chart, colours: &[usize]) -> Markup {
    let mut names: Vec<&str> = Vec::new();
    for name in chart.series.iter().flat_map(|series| &series.labels) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let group = |name: &str| -> Vec<(&Series, usize, f64)> {
        chart
            .series
            .iter()
            .zip(colours)
            .filter_map(|(series, colour)| {
                let at = series.labels.iter().position(|label| label == name)?;
                Some((series, *colour, series.points.get(at)?.1))
            })
            .collect()
    };
    let heights: Vec<f64> =
        names.iter().map(|name| NAME + group(name).len() as f64 * BAR + GROUP_GAP).collect();
    let height = GROUP_GAP + heights.iter().sum::<f64>() + BOTTOM;
    let (bottom, right) = (height - BOTTOM, WIDTH - VALUE);
    let values = chart.series.iter().flat_map(|series| series.points.iter().map(|point| point.1));
    let x = Axis::new(values, Scale::log(chart.y_log), true, (BAR_LEFT, right));
    let tops = heights.iter().scan(GROUP_GAP, |top, height| {
        let this = *top;
        *top += height;
        Some(this)
    });
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(chart.title) {
            @for (value, text) in x.ticks() {
                @let at = round(x.place(value));
                line.grid x1=(at) x2=(at) y1=(GROUP_GAP) y2=(bottom) {}
                // The first would hang over the edge.
                @let anchor = if at <= BAR_LEFT { "start" } else { "middle" };
                text.tick x=(at) y=(bottom + 19.0) text-anchor=(anchor) { (text) }
            }
            @for (name, top) in names.iter().zip(tops) {
                text.barname x=(BAR_LEFT) y=(top + NAME - 8.0) { (name) }
                @for (index, (series, colour, value)) in group(name).into_iter().enumerate() {
                    @let at = top + NAME + index as f64 * BAR;
                    @let end = round(x.place(value));
                    g class={ "c" (colour) @if series.published { " published" } } {
                        rect.bar x=(x.start()) y=(at) width=(round((end - x.start()).max(1.5))) height=(BAR - 2.0) rx="2" {
                            title { (series.name) ": " (label(value)) " " (chart.y) }
                        }
                        text.value x=(end + 6.0) y=(at + BAR - 6.0) { (label(value)) }
                    }
                }
            }
            line.axis x1=(BAR_LEFT) x2=(BAR_LEFT) y1=(GROUP_GAP) y2=(bottom) {}
            text.axisname x=((BAR_LEFT + right) / 2.0) y=(height - 8.0) text-anchor="middle" {
                (chart.y) @if chart.y_log { " (steps of tens)" }
            }
        }
    }
}

/// Tenths are finer than any screen, and keep the page small.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Mark;

    #[test]
    fn a_chart_has_its_lines_marks_and_names_and_escapes_them() {
        let mut chart = Chart::new("x", "a <b> & c", "GB", "MB/s");
        chart.series.push(Series::line("fast", vec![(0.0, 10.0), (10.0, 20.0)]));
        chart.series.push(Series::published("fast published", vec![(5.0, 12.0)]));
        chart.marks.push(Mark { at: 5.0, label: "hand-over".into() });
        let text = figure(&chart).into_string();
        assert!(text.contains("a &lt;b&gt; &amp; c") && text.contains("hand-over"));
        assert_eq!(text.matches("class=\"curve\"").count(), 1);
        assert!(
            text.contains("c1 published"),
            "a published series has its partner's colour: {text}"
        );
    }

    #[test]
    fn bars_of_one_name_stand_together() {
        let mut chart = Chart::new("x", "bars", "", "writes/s");
        let bars =
            |value: f64| vec![("flushed".to_owned(), value), ("never".to_owned(), value * 9.0)];
        chart.series.push(Series::bars("m1", false, bars(46.0)));
        chart.series.push(Series::bars("m1 published", true, bars(58.0)));
        let text = figure(&chart).into_string();
        assert_eq!(text.matches("class=\"bar\"").count(), 4);
        assert_eq!(text.matches(">flushed<").count(), 1);
    }

    #[test]
    fn a_chart_without_points_is_drawn_empty() {
        let text = figure(&Chart::new("x", "nothing", "a", "b")).into_string();
        assert!(text.contains("<svg") && !text.contains("NaN"), "{text}");
    }
}
