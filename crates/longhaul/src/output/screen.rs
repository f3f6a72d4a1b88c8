//! The way onto standard error: whole lines, and beneath them the bar of a terminal.
//!
//! In: texts whose characters are harmless. Out: one write for each, so that neither other threads
//! nor other processes come between. The bar is removed before lines are printed and drawn again
//! behind them. Knows neither labels nor counters.
//!
//! The cursor rests at the bar's first column. A terminal that is made narrower may wrap the bar
//! into several rows and moves the cursor with the text, so that everything from the cursor on is
//! the bar's and is erased with the next draw; so is text that the terminal echoes there (`^C`).

use std::io::{self, Write};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::termios::tcgetwinsize;

/// The bar on the screen, below the finished lines.
#[derive(Debug)]
struct Screen {
    /// The bar as it was drawn last. `None` if there is none.
    bar: Option<String>,
    /// Whether no more bar is drawn.
    is_over: bool,
}

/// The screen. There is one standard error for the whole process, and so one bar.
static SCREEN: Mutex<Screen> = Mutex::new(Screen { bar: None, is_over: false });

/// Prints whole lines.
pub(super) fn print(lines: &str) {
    write(lock().lines(lines));
}

/// Draws the bar, in place of the one that stands there.
pub(super) fn draw_bar(bar: String) {
    write(lock().draw(bar));
}

/// Removes the bar.
pub(super) fn clear_bar() {
    write(lock().clear());
}

/// Removes the bar for good, as the process ends. Waits no longer than `most` for a terminal that
/// takes nothing.
pub fn leave_screen(most: Duration) {
    let (cleared, done) = sync_channel(1);
    let clear = move || {
        write(lock().end());
        // The waiting thread may have given up.
        let _ = cleared.send(());
    };
    if thread::Builder::new().spawn(clear).is_ok() {
        let _ = done.recv_timeout(most);
    }
}

/// Columns of the terminal behind standard error; 80 if it does not say.
pub(super) fn columns() -> usize {
    match tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => COLUMNS_UNKNOWN,
    }
}

fn lock() -> MutexGuard<'static, Screen> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes to standard error. A standard error that is gone is no error, as it could not be told.
fn write(text: String) {
    if !text.is_empty() {
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

impl Screen {
    fn lines(&self, lines: &str) -> String {
        match &self.bar {
            None => lines.to_owned(),
            Some(bar) => format!("{ERASE}{lines}{bar}\r"),
        }
    }

    fn draw(&mut self, bar: String) -> String {
        if self.is_over {
            return String::new();
        }
        let erase = if self.bar.is_some() { ERASE } else { "\r" };
        let text = format!("{erase}{bar}\r");
        self.bar = Some(bar);
        text
    }

    fn clear(&mut self) -> String {
        self.bar.take().map_or(String::new(), |_| ERASE.to_owned())
    }

    fn end(&mut self) -> String {
        self.is_over = true;
        self.clear()
    }
}

/// The sequence that moves to the first column and erases everything from there on.
const ERASE: &str = "\r\x1b[J";
const COLUMNS_UNKNOWN: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_above_the_bar_and_nothing_of_it_stays() {
        let mut screen = Screen { bar: None, is_over: false };
        assert_eq!(screen.lines("a\n"), "a\n");
        assert_eq!(screen.draw("42%".to_owned()), "\r42%\r");
        assert_eq!(screen.lines("b\n"), "\r\x1b[Jb\n42%\r");
        assert_eq!(screen.draw("43%".to_owned()), "\r\x1b[J43%\r");
        assert_eq!(screen.clear(), "\r\x1b[J");
        assert_eq!((screen.clear().as_str(), screen.lines("c\n").as_str()), ("", "c\n"));
        assert_eq!(screen.draw("44%".to_owned()), "\r44%\r");
        assert_eq!((screen.end().as_str(), screen.draw("45%".to_owned()).as_str()), ("\r\x1b[J", ""));
    }
}
