//! Plots of the last hour, drawn here, so that they need no program in the browser.
//!
//! In: series of numbers, the oldest first. Out: an SVG with its axes, and the same in words.
//! Labels are texts beside the drawing, so that they stay legible when it is stretched.

use std::fmt::Write;

use super::html::Html;
use crate::watch::history::SAMPLES_MAX;

/// A plot.
pub(super) struct Plot<'a> {
    /// Its name, for links.
    pub(super) id: &'static str,
    /// Its heading.
    pub(super) title: &'static str,
    /// Its lines.
    pub(super) series: &'a [Series<'a>],
    /// How a value is shown.
    pub(super) shown: fn(f64) -> String,
    /// The unit in which the top of the scale is a round number.
    pub(super) unit: f64,
    /// The least top of the scale.
    pub(super) least: f64,
}

/// A line of a plot.
pub(super) struct Series<'a> {
    /// Its name.
    pub(super) name: &'static str,
    /// The class of its style.
    pub(super) class: &'static str,
    /// Its values, the oldest first.
    pub(super) values: &'a [f64],
}

impl Plot<'_> {
    /// Its markup.
    pub(super) fn markup(&self) -> Html {
        let most = self.series.iter().flat_map(|line| line.values).copied().fold(self.least, f64::max);
        let top = nice(most / self.unit) * self.unit;
        let mut html = Html::default();
        html.raw("<figure aria-labelledby=\"").raw(self.id).raw("-h\"><figcaption id=\"").raw(self.id);
        html.raw("-h\"><h2>").raw(self.title).raw("</h2><ul class=\"legend\">");
        for line in self.series {
            html.raw("<li class=\"").raw(line.class).raw("\"><span class=\"key\" aria-hidden=\"true\"></span>");
            html.raw(line.name);
            if line.values.is_empty() {
                html.raw(" <span class=\"soft\">no figures yet</span></li>");
                continue;
            }
            html.raw(" <b>").text(&self.now(line)).raw("</b> <span class=\"soft\">mean ");
            html.text(&self.mean(line)).raw(", most ").text(&self.most(line)).raw("</span></li>");
        }
        html.raw("</ul></figcaption><div class=\"plot\"><div class=\"y\" aria-hidden=\"true\">");
        for part in [1.0, 0.5, 0.0] {
            html.raw("<span>").text(&(self.shown)(top * part)).raw("</span>");
        }
        html.raw("</div><svg role=\"img\" preserveAspectRatio=\"none\" viewBox=\"0 0 359 100\" aria-label=\"");
        html.raw(self.title).raw(", the last hour\"><path class=\"grid\" d=\"M0 0H359M0 50H359M0 100H359\"/>");
        html.raw("<path class=\"grid\" d=\"M89.75 0V100M179.5 0V100M269.25 0V100\"/>");
        for line in self.series {
            html.raw("<path class=\"line ").raw(line.class).raw("\" d=\"").text(&drawn(line.values, top)).raw("\"/>");
        }
        html.raw("</svg><div class=\"x\" aria-hidden=\"true\"><span>1 h ago</span><span>45 min</span>");
        html.raw("<span>30 min</span><span>15 min</span><span>now</span></div></div></figure>");
        html
    }

    fn now(&self, line: &Series<'_>) -> String {
        (self.shown)(line.values.last().copied().unwrap_or(0.0))
    }

    fn mean(&self, line: &Series<'_>) -> String {
        (self.shown)(line.values.iter().fold(0.0, |sum, value| sum + value) / line.values.len().max(1) as f64)
    }

    fn most(&self, line: &Series<'_>) -> String {
        (self.shown)(line.values.iter().copied().fold(0.0, f64::max))
    }
}

/// The path of a line: the last value is at the right edge, whatever has not been is left out.
fn drawn(values: &[f64], top: f64) -> String {
    let mut path = String::new();
    let first = SAMPLES_MAX.saturating_sub(values.len());
    for (number, value) in values.iter().take(SAMPLES_MAX).enumerate() {
        let height = 100.0 - 100.0 * (value / top).clamp(0.0, 1.0);
        // A sample is as wide as its time, so that the first one shows as well. Writing to a String
        // cannot fail.
        if number == 0 {
            let _ = write!(path, "M{} {height:.1}", (first + number).saturating_sub(1));
        }
        let _ = write!(path, "L{} {height:.1}", first + number);
    }
    path
}

/// The next of 1, 2 and 5 with any number of zeros.
fn nice(most: f64) -> f64 {
    let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
    let power = 10_f64.powf(most.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.iter().map(|step| step * power).find(|top| *top >= most * 0.999).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_ends_above_what_it_shows_and_a_line_ends_now() {
        for (most, top) in [(0.0, 1.0), (1.0, 1.0), (1.01, 2.0), (3e9, 5e9), (6.0, 10.0), (f64::NAN, 1.0)] {
            assert!((nice(most) - top).abs() < top * 1e-9, "{most}");
        }
        assert_eq!(drawn(&[0.0, 1.0], 2.0), "M357 100.0L358 100.0L359 50.0");
        assert_eq!(drawn(&[], 1.0), "");
        assert!(drawn(&[1.0; 1000], 1.0).ends_with("L359 0.0"), "no more than an hour");
    }
}
