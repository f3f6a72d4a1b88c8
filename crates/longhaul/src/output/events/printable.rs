//! The JSON spelling of characters that would act on a terminal.
//!
//! In: strings on their way into a line. Out: the same to every parser, harmless to every terminal.
//! Knows no events.

use std::io::{self, Write};

use serde_json::ser::{CompactFormatter, Formatter};

use longhaul_core::is_deceptive;

/// Keeps characters out of the line that would act on a terminal; to a parser the strings are the
/// same.
#[derive(Default)]
pub(super) struct Printable(CompactFormatter);

impl Formatter for Printable {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        if !fragment.chars().any(is_deceptive) {
            return self.0.write_string_fragment(writer, fragment);
        }
        for c in fragment.chars() {
            let mut units = [0; 2];
            match c {
                deceptive if is_deceptive(deceptive) => {
                    deceptive.encode_utf16(&mut units).iter().try_for_each(|unit| write!(writer, "\\u{unit:04x}"))?;
                }
                harmless => write!(writer, "{harmless}")?,
            }
        }
        Ok(())
    }
}
