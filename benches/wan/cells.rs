//! Owns the names of what this bench measures, one for each cell of its tables, and the choice
//! among them. Takes words of the command line; must not know how anything is run.

use crate::case::Case;

/// The cells that are to be measured, by words of their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    /// Each is words that all stand in the name of a cell. Empty: every cell.
    only: Vec<String>,
    /// Whether names are printed and nothing is measured.
    lists: bool,
}

impl Cells {
    /// The cells whose names have all words of one of `only`.
    pub(crate) fn of(only: &[String], lists: Lists) -> Cells {
        Cells { only: only.to_vec(), lists: lists == Lists::Names }
    }

    /// Whether this cell is to be measured. If names are wanted, prints it and says that it is not.
    pub(crate) fn has(&self, name: &str) -> bool {
        let is_chosen = self.only.is_empty() || self.only.iter().any(|words| has_all(name, words));
        if is_chosen && self.lists {
            println!("{name}");
        }
        is_chosen && !self.lists
    }
}

/// The use of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    /// The chosen ones are measured.
    Nothing,
    /// They are printed.
    Names,
}

fn has_all(name: &str, words: &str) -> bool {
    words.split_whitespace().all(|wanted| name.split(' ').any(|word| word == wanted))
}

/// The name of a cell of this kind over this path.
pub(crate) fn path_cell(kind: &str, case: &Case) -> String {
    let loss = if case.loss == 0.0 { "0".to_owned() } else { format!("{:e}", case.loss) };
    format!("{kind} {} {}ms loss-{loss} mtu-{}", case.rate, case.rtt.as_millis(), case.mtu)
}
