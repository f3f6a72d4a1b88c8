//! Plots of measurements, as SVG or within a page: axes with units, and lines that differ by dash
//! and marker, so that they can be told apart in black and white.
//!
//! In: [`PlotPanel`]s of the measurements in `bench`, and their table. Out: the text of a file, to
//! `commands`. It writes no file and knows no measurement.

use std::fmt::Write as _;
use std::io;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::{
    BLACK, ChartBuilder, Color, DrawingArea, EmptyElement, IntoDrawingArea, LineSeries, PathElement, Polygon, RGBColor,
    SVGBackend, Text, WHITE,
};
use plotters::style::ShapeStyle;

use crate::values::PlotForm;

/// One chart of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotPanel {
    /// The text above it.
    pub title: String,
    /// The quantity and unit of the horizontal axis.
    pub x: &'static str,
    /// The scale of the horizontal axis.
    pub scale: PlotScale,
    /// The quantity and unit of the vertical axis, which begins at 0.
    pub y: &'static str,
    /// The lines.
    pub lines: Vec<PlotLine>,
}

/// The scale of a horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlotScale {
    /// Steps of equal size.
    Linear,
    /// Doublings of a number, with a tick at each point.
    Doublings,
    /// Doublings of a size in bytes, with a tick at each point.
    Sizes,
}

/// One line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotLine {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in the order of the horizontal axis.
    pub points: Vec<(f64, f64)>,
}

/// The content of a plot's file: the panels one above the other, and in a page the table beneath.
///
/// # Errors
/// The error of drawing.
pub fn plot_text(form: PlotForm, panels: &[PlotPanel], table: &str) -> io::Result<String> {
    let picture = picture(panels).map_err(|error| io::Error::other(error.to_string()))?;
    match form {
        PlotForm::Svg => Ok(picture),
        PlotForm::Html => Ok(page(&picture, table)),
    }
}

fn page(picture: &str, table: &str) -> String {
    let escaped = table.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>longhaul bench</title></head>\n<body>\n{picture}<pre>\n{escaped}</pre>\n</body>\n</html>\n"
    )
}

type DrawError = Box<dyn std::error::Error>;

fn picture(panels: &[PlotPanel]) -> Result<String, DrawError> {
    let mut text = String::new();
    {
        let size = (WIDTH, PANEL_HEIGHT * panels.len().max(1) as u32);
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, panel) in root.split_evenly((panels.len().max(1), 1)).iter().zip(panels) {
            draw(area, panel)?;
        }
        root.present()?;
    }
    Ok(dashed(text))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw(area: &Area<'_>, panel: &PlotPanel) -> Result<(), DrawError> {
    let (left, right) = area.split_horizontally(WIDTH - LEGEND_WIDTH);
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let xs: Vec<f64> = points().map(|(x, _)| panel.scale.place(*x)).collect();
    let (from, to) = bounds(&xs);
    let top = points().map(|(_, y)| *y).fold(0.0, f64::max).max(MIN_TOP) * 1.05;
    let x_ticks = if panel.scale == PlotScale::Linear { ticks(from, to) } else { unique(xs) };
    let mut chart = ChartBuilder::on(&left)
        .caption(&panel.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(PlotAxis::new((from, to), x_ticks), PlotAxis::new((0.0, top), ticks(0.0, top)))?;
    chart
        .configure_mesh()
        .x_desc(panel.x)
        .y_desc(panel.y)
        .x_label_formatter(&|x| panel.scale.label(*x))
        .y_label_formatter(&|y| plain(*y))
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.15))
        .draw()?;
    for (number, line) in panel.lines.iter().enumerate() {
        let placed: Vec<(f64, f64)> = line.points.iter().map(|(x, y)| (panel.scale.place(*x), *y)).collect();
        chart.draw_series(LineSeries::new(placed.iter().copied(), style(number)))?;
        let (outline, fill) = marker(number);
        let closed: Vec<_> = outline.iter().chain(outline.first()).copied().collect();
        chart.draw_series(placed.iter().map(|at| {
            EmptyElement::at(*at)
                + Polygon::new(outline.clone(), fill.filled())
                + PathElement::new(closed.clone(), BLACK)
        }))?;
        entry(&right, number, &line.name)?;
    }
    Ok(())
}

/// An entry of the legend, beside the chart, where it hides no point.
fn entry(area: &Area<'_>, number: usize, name: &str) -> Result<(), DrawError> {
    let y = 50 + 22 * number as i32;
    let (outline, fill) = marker(number);
    let closed: Vec<_> = outline.iter().chain(outline.first()).copied().collect();
    area.draw(&PathElement::new(vec![(4, y), (52, y)], style(number)))?;
    area.draw(&(EmptyElement::at((28, y)) + Polygon::new(outline, fill.filled()) + PathElement::new(closed, BLACK)))?;
    area.draw(&Text::new(name.to_owned(), (60, y - 7), ("sans-serif", 14)))?;
    Ok(())
}

/// The style of a line. Its shade is nearly black and stands for its number: [`dashed`] puts its
/// dashes in its place, which the library does not draw in one piece.
fn style(number: usize) -> ShapeStyle {
    ShapeStyle::from(&shade(number)).stroke_width(2)
}

fn shade(number: usize) -> RGBColor {
    let level = (number % SHADES) as u8 + 1;
    RGBColor(level, level, level)
}

/// The picture with black lines that differ by their dashes.
fn dashed(mut picture: String) -> String {
    for number in 0..SHADES {
        let RGBColor(r, g, b) = shade(number);
        let mut dashes = String::new();
        // Writing to a String cannot fail.
        let _ = write!(dashes, "stroke=\"#000000\" stroke-dasharray=\"{}\"", DASHES[number % DASHES.len()]);
        picture = picture.replace(&format!("stroke=\"#{r:02X}{g:02X}{b:02X}\""), &dashes);
    }
    picture
}

/// The outline of a line's marker around its point, in pixels, and its colour inside.
fn marker(number: usize) -> (Vec<(i32, i32)>, RGBColor) {
    let outline: &[(i32, i32)] = match number % 4 {
        0 => &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
        1 => &[(0, -6), (6, 5), (-6, 5)],
        2 => &[(0, -6), (6, 0), (0, 6), (-6, 0)],
        _ => &[(-6, -5), (6, -5), (0, 6)],
    };
    (outline.to_vec(), if number % 8 < 4 { BLACK } else { WHITE })
}

/// An axis with ticks of its own.
struct PlotAxis {
    ends: (f64, f64),
    ticks: Vec<f64>,
}

impl PlotAxis {
    fn new(ends: (f64, f64), ticks: Vec<f64>) -> PlotAxis {
        PlotAxis { ends, ticks }
    }
}

impl Ranged for PlotAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (value - self.ends.0) / (self.ends.1 - self.ends.0);
        first + (f64::from(last - first) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.ends.0..self.ends.1
    }
}

impl PlotScale {
    /// The place of a value on the axis.
    fn place(self, value: f64) -> f64 {
        if self == PlotScale::Linear { value } else { value.max(1.0).log2() }
    }

    /// The label of a place.
    fn label(self, place: f64) -> String {
        match self {
            PlotScale::Linear => plain(place),
            PlotScale::Doublings => plain(place.exp2().round()),
            PlotScale::Sizes => size(place.exp2().round() as u64),
        }
    }
}

/// `64 KiB`, without a decimal where there is none.
pub(super) fn size(bytes: u64) -> String {
    longhaul_core::ByteCount(bytes).to_string().replace(".0 ", " ")
}

/// A number with as many decimals as it needs, three at most.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The ends of an axis: its outermost values, apart from each other.
fn bounds(values: &[f64]) -> (f64, f64) {
    let (from, to) = values.iter().fold((f64::MAX, f64::MIN), |(from, to), value| (from.min(*value), to.max(*value)));
    if from > to {
        return (0.0, 1.0);
    }
    let margin = ((to - from) * 0.03).max(if to > from { 0.0 } else { 0.5 });
    (from - margin, to + margin)
}

/// About eight round numbers between two values.
fn ticks(from: f64, to: f64) -> Vec<f64> {
    let rough = ((to - from) / 8.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|round| round * power).find(|step| *step >= rough).unwrap_or(rough);
    let first = (from / step).ceil();
    (0..20).map(|n| (first + f64::from(n)) * step).take_while(|tick| *tick <= to).collect()
}

fn unique(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

const WIDTH: u32 = 900;
const PANEL_HEIGHT: u32 = 420;
const LEGEND_WIDTH: u32 = 190;
/// The top of an axis without any value above 0.
const MIN_TOP: f64 = 1e-9;
/// Lines that differ in one chart.
const SHADES: usize = 16;
const DASHES: [&str; 8] = ["none", "8 3", "2 3", "8 3 2 3", "14 4", "1 2", "8 3 2 3 2 3", "4 2"];

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(lines: usize) -> PlotPanel {
        let line =
            |n| PlotLine { name: format!("depth {n}"), points: vec![(65536.0, 1.0), (131072.0, 2.0 + n as f64)] };
        let (x, y) = ("chunk size", "rate (MB/s)");
        PlotPanel { title: "read".into(), x, scale: PlotScale::Sizes, y, lines: (0..lines).map(line).collect() }
    }

    #[test]
    fn a_picture_has_axes_with_units_and_a_dashed_line_for_each_name() {
        let text = plot_text(PlotForm::Svg, &[panel(3), panel(2)], "").unwrap();
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"), "{text}");
        for label in ["rate (MB/s)", "chunk size", "64 KiB", "128 KiB", "depth 0", "depth 2"] {
            assert!(text.contains(label), "{label}: {text}");
        }
        // Each line stands in its chart and in the legend.
        assert_eq!(text.matches("stroke-dasharray").count(), 2 * (3 + 2), "{text}");
        for colour in text.split("stroke=\"#").skip(1) {
            assert!(colour.starts_with("000000") || colour.starts_with("FFFFFF"), "{colour}");
        }
    }

    #[test]
    fn a_page_has_the_picture_and_the_table_with_its_signs_escaped() {
        let text = plot_text(PlotForm::Html, &[panel(1)], "a < b & c\n").unwrap();
        assert!(text.contains("<svg ") && text.contains("a &lt; b &amp; c\n</pre>"), "{text}");
    }

    #[test]
    fn nothing_measured_makes_an_empty_chart() {
        assert!(plot_text(PlotForm::Svg, &[panel(0)], "").is_ok());
    }

    #[test]
    fn ticks_are_round_numbers_within_their_ends() {
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(
            ticks(0.3, 1.0),
            [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0].map(|tick: f64| (tick * 10.0).round() * 0.1)
        );
    }
}
