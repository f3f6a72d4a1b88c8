//! Tables of the status page: for eyes, for a screen reader, and for a screen of 400 pixels, on
//! which each row becomes a card.
//!
//! In: a caption, heads, and rows of cells. Out: markup. A card has no heads above it, so that each
//! cell carries its own; roles are named, as browsers forget them when a table is shown as cards.

use super::html::Html;

/// A table.
pub(super) struct Table {
    /// The name of the section that it is, for links and for the script.
    pub(super) id: &'static str,
    /// Its heading.
    pub(super) caption: &'static str,
    /// The heads of its columns; the first column names the row.
    pub(super) heads: &'static [Head],
    /// The words in place of rows, if there are none.
    pub(super) empty: &'static str,
}

/// The head of a column.
pub(super) struct Head(pub(super) &'static str, pub(super) Align);

/// The side on which the cells of a column are set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    /// Words, which are not broken.
    Left,
    /// Texts of any length.
    Free,
    /// Numbers.
    Right,
}

/// A cell.
pub(super) enum Cell {
    /// A text.
    Text(String),
    /// A text with another one beneath it that says more.
    Two(String, String),
    /// A part of a whole, 0 to 1, with its text, and whether it is too much.
    Bar(f64, String, Tone),
    /// A word that tells a state, with a text beneath it that says more.
    Pill(String, String, Tone),
}

/// How a state is shown. It is always said in words, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// As it should be.
    Fine,
    /// To be looked at.
    Doubtful,
    /// Wrong.
    Bad,
    /// None of these.
    Plain,
}

impl Tone {
    /// The class of its style.
    pub(super) fn class(self) -> &'static str {
        match self {
            Tone::Fine => "fine",
            Tone::Doubtful => "doubtful",
            Tone::Bad => "bad",
            Tone::Plain => "plain",
        }
    }
}

impl Table {
    /// Its markup.
    pub(super) fn markup(&self, rows: Vec<Vec<Cell>>) -> Html {
        let mut html = Html::default();
        html.raw("<section id=\"").raw(self.id).raw("\" aria-labelledby=\"").raw(self.id).raw("-h\">");
        html.raw("<h2 id=\"").raw(self.id).raw("-h\">").raw(self.caption);
        html.raw(" <span class=\"count\">").show(rows.len()).raw("</span></h2>");
        if rows.is_empty() {
            html.raw("<p class=\"empty\">").raw(self.empty).raw("</p></section>");
            return html;
        }
        html.raw("<table role=\"table\"><caption class=\"hidden\">").raw(self.caption).raw("</caption>");
        html.raw("<thead role=\"rowgroup\"><tr role=\"row\">");
        for Head(name, align) in self.heads {
            html.raw("<th role=\"columnheader\" scope=\"col\"").raw(of_align(*align)).raw(">").raw(name).raw("</th>");
        }
        html.raw("</tr></thead><tbody role=\"rowgroup\">");
        for row in rows {
            html.raw("<tr role=\"row\">");
            for (number, (cell, Head(name, align))) in row.into_iter().zip(self.heads).enumerate() {
                let (open, close) = match number {
                    0 => ("<th role=\"rowheader\" scope=\"row\"", "</th>"),
                    _ => ("<td role=\"cell\"", "</td>"),
                };
                html.raw(open).raw(of_align(*align)).raw(" data-head=\"").raw(name).raw("\">");
                cell.write(&mut html);
                html.raw(close);
            }
            html.raw("</tr>");
        }
        html.raw("</tbody></table></section>");
        html
    }
}

impl Cell {
    fn write(&self, html: &mut Html) {
        match self {
            Cell::Text(text) => html.raw("<span>").text(text).raw("</span>"),
            Cell::Two(text, more) => html.raw("<span>").text(text).raw("<small>").text(more).raw("</small></span>"),
            Cell::Bar(part, text, tone) => {
                // Its text says the same.
                html.raw("<span class=\"bar\"><progress aria-hidden=\"true\" max=\"1\" class=\"").raw(tone.class());
                html.raw("\" value=\"").show(format_args!("{:.3}", part.clamp(0.0, 1.0))).raw("\"></progress>");
                html.raw("<span>").text(text).raw("</span></span>")
            }
            Cell::Pill(text, more, tone) => {
                html.raw("<span class=\"pill ").raw(tone.class()).raw("\">").text(text).raw("</span>");
                html.raw("<small>").text(more).raw("</small>")
            }
        };
    }
}

fn of_align(align: Align) -> &'static str {
    match align {
        Align::Left => " class=\"word\"",
        Align::Free => "",
        Align::Right => " class=\"number\"",
    }
}
