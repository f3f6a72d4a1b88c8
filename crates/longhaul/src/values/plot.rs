//! The file that takes a plot, and the form that its name asks for.
//!
//! In: the text of `--plot`. Out: a [`PlotPlace`]. It opens nothing and draws nothing.

use std::path::PathBuf;

use crate::error::Flaw;

/// The form of a plot's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlotForm {
    /// The picture alone.
    Svg,
    /// A page with the picture and the table.
    Html,
}

/// The file that takes a plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlotPlace {
    /// Its path.
    pub path: PathBuf,
    /// Its form, as the ending of its name says.
    pub form: PlotForm,
}

/// Reads the path of a plot.
pub(crate) fn plot(text: &str) -> Result<PlotPlace, Flaw> {
    let form = match text.rsplit_once('.') {
        Some((_, "svg")) => PlotForm::Svg,
        Some((_, "html")) => PlotForm::Html,
        _ => return Err(Flaw::Form { given: text.to_owned(), form: "a file name that ends in .svg or .html" }),
    };
    Ok(PlotPlace { path: text.into(), form })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_name_says_the_form_of_a_plot() {
        assert_eq!(plot("a.b.svg").map(|place| place.form), Ok(PlotForm::Svg));
        assert_eq!(plot("a.html").map(|place| place.form), Ok(PlotForm::Html));
        for bad in ["a.png", "svg", "a.svg.gz", ""] {
            assert!(plot(bad).is_err(), "{bad}");
        }
    }
}
