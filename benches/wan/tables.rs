//! Owns the tables of docs/BENCHMARKS.md that are made of raw results: so a long measurement may be
//! cut into pieces, each of which leaves its lines. Takes the file of raw lines; must not know how
//! anything was measured.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::kit::median;

/// A column: its head, where a line has its figure, by how much that is divided, and its decimals.
type Column = (&'static str, &'static str, f64, usize);

/// A table of all cells whose names begin with one word.
struct TableOf {
    kind: &'static str,
    says: &'static str,
    columns: &'static [Column],
}

/// Prints all tables.
pub(crate) fn print(lines: &Path) -> Result<()> {
    TABLES.iter().try_for_each(|table| print_kind(lines, table.kind))
}

/// Prints the table of cells of this kind, if any was ever measured.
pub(crate) fn print_kind(lines: &Path, kind: &str) -> Result<()> {
    let table = TABLES.iter().find(|table| table.kind == kind).context("no such table")?;
    let text = fs::read_to_string(lines).with_context(|| format!("cannot read {}", lines.display()))?;
    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    // A line that a kill cut short is no line.
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let Some(name) = name_of(&line).filter(|name| name.split(' ').next() == Some(kind)) else { continue };
        let row = rows.entry(name).or_default();
        // Lines of one run have one date. Those of an earlier run are forgotten.
        row.retain(|earlier| earlier["host"]["date"] == line["host"]["date"]);
        row.push(line);
    }
    if !rows.is_empty() {
        println!("\n{}\n\n{}", table.says, table.markdown(&rows));
    }
    Ok(())
}

/// The name of a row: that of its cell, and what was done there if a cell has several rows.
fn name_of(line: &Value) -> Option<String> {
    let known = line["is_known"].as_bool().map(|is_known| if is_known { "known-peer" } else { "first-visit" });
    let words = [line["cell"].as_str(), known, line["what"].as_str()];
    line["cell"].is_string().then(|| words.into_iter().flatten().collect::<Vec<_>>().join(" "))
}

impl TableOf {
    fn markdown(&self, rows: &BTreeMap<String, Vec<Value>>) -> String {
        let heads: Vec<&str> = self.columns.iter().map(|(head, ..)| *head).collect();
        let mut text = format!("| cell | {} | measured |\n", heads.join(" | "));
        text += &format!("|---|{}---|\n", "--:|".repeat(heads.len()));
        for (name, lines) in rows {
            let cells: Vec<String> = self.columns.iter().map(|column| figure(lines, *column)).collect();
            let last = lines.last().map_or("", |line| line["host"]["date"].as_str().unwrap_or_default());
            let quick = if lines.iter().any(|line| line["quick"] == true) { ", short" } else { "" };
            let name = name.split_once(' ').map_or(name.as_str(), |(_, rest)| rest);
            text += &format!("| {name} | {} | {}{quick} |\n", cells.join(" | "), last.get(..10).unwrap_or(last));
        }
        text
    }
}

/// The median of a figure over the rounds of a run.
fn figure(lines: &[Value], (_, at, divisor, decimals): Column) -> String {
    let figures: Vec<f64> = lines.iter().filter_map(|line| line.pointer(at)?.as_f64()).collect();
    if figures.is_empty() { "-".to_owned() } else { format!("{:.*}", decimals, median(&figures) / divisor) }
}

const MBIT: f64 = 1e6;
const TABLES: &[TableOf] = &[
    TableOf {
        kind: "beside",
        says: "Sessions beside others. Rates in Mbit/s; `theirs` is of all others together.",
        columns: &[
            ("1 flow alone", "/flow_alone_bits_per_s", MBIT, 0),
            ("theirs", "/others_bits_per_s", MBIT, 0),
            ("ours", "/ours_bits_per_s", MBIT, 0),
            ("of alone", "/of_alone", 1.0, 2),
            ("of fair part", "/of_fair_part", 1.0, 2),
            ("Jain", "/jain", 1.0, 2),
            ("after it left", "/after_it_left", 1.0, 2),
            ("queue kept", "/queue_kept_bdp", 1.0, 2),
            ("share told", "/share_beside", 1.0, 2),
            ("queue full %", "/queue_share", 0.01, 2),
        ],
    },
    TableOf {
        kind: "large",
        says: "One large file. Parts of the rate; `to exit` from the arrival of the last payload; CPU seconds of the client \
               and of the daemon.",
        columns: &[
            ("goodput Mbit/s", "/goodput_bits_per_s", MBIT, 0),
            ("ratio", "/ratio", 1.0, 3),
            ("target", "/target", 1.0, 2),
            ("whole run", "/whole_ratio", 1.0, 3),
            ("seconds", "/seconds", 1.0, 2),
            ("to exit s", "/to_exit_s", 1.0, 2),
            ("to exit RTT", "/to_exit_rtts", 1.0, 2),
            ("resent / lost", "/resent_of_lost", 1.0, 3),
            ("client CPU s", "/client_cpu_s", 1.0, 2),
            ("daemon CPU s", "/daemon_cpu_s", 1.0, 2),
        ],
    },
    TableOf {
        kind: "short",
        says: "Short transfers. Round trips from start to exit, and from the last payload to exit by the client's own \
               account; 0.3 GB as a part of the line.",
        columns: &[
            ("round trips", "/round_trips", 1.0, 2),
            ("of the line", "/of_line", 1.0, 2),
            ("to exit RTT", "/last_byte_rtts", 1.0, 2),
            ("resent / lost", "/resent_of_lost", 1.0, 3),
        ],
    },
];
