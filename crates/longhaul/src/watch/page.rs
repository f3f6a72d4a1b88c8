//! The status page: one page that shows how the daemon does, without a program in the browser.
//!
//! In: the state as an object. Out: HTML, a style and a small script that fetches the page again.
//! `html` escapes, `table` and `plot` draw. Nothing is loaded from elsewhere. Every name comes from
//! a configuration, a client or a disk, and is a text here, never markup.

mod html;
mod plot;
mod table;

use self::html::Html;
use self::plot::{Plot, Series};
use self::table::{Align, Cell, Head, Table, Tone};
use super::status::{FaultOf, IN, PathOf, RootState, SessionState, Status, TargetOf};
use crate::output::{bits, bytes_rate, span};

/// The style of the page.
pub(super) const STYLE: &str = include_str!("page/style.css");
/// The script of the page.
pub(super) const SCRIPT: &str = include_str!("page/script.js");

/// The page.
pub(super) fn page(status: &Status) -> String {
    let mut html = Html::default();
    html.raw("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.raw("<meta name=\"color-scheme\" content=\"light dark\"><title>longhaul</title>");
    html.raw("<link rel=\"stylesheet\" href=\"/style.css\"><script src=\"/script.js\" defer></script></head><body>");
    html.raw("<a class=\"skip\" href=\"#main\">Skip to the figures</a><header><h1>longhaul <small>");
    html.text(status.head.version).raw("</small></h1><nav aria-label=\"Tools\">");
    html.raw("<span id=\"told\" role=\"status\"></span>");
    html.raw("<button id=\"pause\" type=\"button\" aria-pressed=\"false\" hidden>Pause</button>");
    html.raw("<a href=\"/\">Reload</a><a href=\"/status.json\">JSON</a><a href=\"/metrics\">Metrics</a>");
    html.raw("</nav></header><main id=\"main\" tabindex=\"-1\">");
    html.part(state(status)).part(tiles(status)).part(plots(status));
    html.part(sessions(&status.sessions)).part(roots(&status.roots)).part(paths(&status.paths));
    html.part(faults(&status.faults)).part(foot(status));
    html.raw("</main></body></html>\n");
    html.end()
}

/// The state in a word, and the reasons if it is not ready.
fn state(status: &Status) -> Html {
    let tone = match (status.state, status.unready.is_empty()) {
        ("serving", true) => Tone::Fine,
        ("serving", false) => Tone::Bad,
        _ => Tone::Doubtful,
    };
    let mut html = Html::default();
    html.raw("<div class=\"state\"><span class=\"pill ").raw(tone.class()).raw("\">").text(status.state);
    html.raw(if status.unready.is_empty() { ", ready" } else { ", not ready" }).raw("</span> ");
    html.raw("<span class=\"soft\">for ")
        .text(&span(status.head.seconds))
        .raw(" at ")
        .text(&status.head.listen.join(", "));
    html.raw("</span>");
    if !status.unready.is_empty() {
        html.raw("<ul class=\"reasons\">");
        for reason in &status.unready {
            html.raw("<li>").text(reason).raw("</li>");
        }
        html.raw("</ul>");
    }
    html.raw("</div>");
    html
}

/// The figures of the whole.
fn tiles(status: &Status) -> Html {
    let (load, totals) = (&status.load, &status.totals);
    let of = |part: u64, most: u64| if most == 0 { 0.0 } else { part as f64 / most as f64 };
    let mut html = Html::default();
    html.raw("<dl class=\"tiles\">");
    let mut tile = |name: &'static str, value: String, more: String, tone: Tone| {
        html.raw("<div class=\"").raw(tone.class()).raw("\"><dt>").raw(name).raw("</dt><dd><b>").text(&value);
        html.raw("</b><small>").text(&more).raw("</small></dd></div>");
    };
    let ended = format!("{} done, {} failed", totals.sessions_complete, totals.sessions_failed);
    tile(
        "Sessions",
        format!("{} of {}", load.sessions, load.sessions_max),
        ended,
        full(of(load.sessions, load.sessions_max)),
    );
    let limit = load.rate_limit_per_s.map_or(String::new(), |rate| format!("of {} in all", bits(rate as f64)));
    tile("Receiving", bits(load.received_per_s as f64), total(totals.received_bytes), Tone::Plain);
    tile("Sending", bits(load.sent_per_s as f64), join(&[total(totals.sent_bytes), limit]), Tone::Plain);
    let tone = if totals.files_failed > 0 { Tone::Doubtful } else { Tone::Plain };
    tile("Files", totals.files_committed.to_string(), format!("{} failed", totals.files_failed), tone);
    let most = format!("of {}", size(load.memory_max));
    tile("Buffers", size(load.memory_bytes), most, full(of(load.memory_bytes, load.memory_max)));
    let (open, most) = (load.descriptors.unwrap_or(0), load.descriptors_max.unwrap_or(0));
    tile("Descriptors", open.to_string(), format!("of {most}"), full(of(open, most)));
    let resident = load.resident_bytes.map_or_else(|| "unknown".to_owned(), size);
    let cpu = load.cpu_s.map_or(String::new(), |seconds| format!("{} processor time", span(seconds)));
    tile("Process", resident, cpu, Tone::Plain);
    let strangers = format!("{} connecting", load.unauthenticated);
    tile("Refused", totals.refused.to_string(), strangers, Tone::Plain);
    if let (Some(records), Some(lost)) = (totals.audit_records, totals.audit_lost) {
        let tone = if lost > 0 { Tone::Bad } else { Tone::Plain };
        tile("Audit records", records.to_string(), format!("{lost} lost"), tone);
    }
    html.raw("</dl>");
    html
}

fn plots(status: &Status) -> Html {
    let hour = &status.history;
    let rates = [
        Series { name: "receiving", class: "one", values: &hour.received_per_s },
        Series { name: "sending", class: "two", values: &hour.sent_per_s },
    ];
    let running = [Series { name: "running", class: "three", values: &hour.sessions }];
    // A scale of round numbers of bits.
    let rates = Plot { id: "rates", title: "Rates", series: &rates, shown: bits, unit: 0.125, least: 1e5 };
    let number: fn(f64) -> String =
        |value| format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned();
    let sessions = Plot { id: "running", title: "Sessions", series: &running, shown: number, unit: 1.0, least: 2.0 };
    let mut html = Html::default();
    html.raw("<div class=\"plots\">").part(rates.markup()).part(sessions.markup()).raw("</div>");
    html
}

fn sessions(sessions: &[SessionState]) -> Html {
    let table = Table {
        id: "sessions",
        caption: "Sessions",
        heads: &[
            Head("Client", Align::Free),
            Head("What", Align::Free),
            Head("Progress", Align::Left),
            Head("Rate", Align::Right),
            Head("Left", Align::Right),
            Head("Limited by", Align::Left),
            Head("Lanes", Align::Left),
            Head("Files", Align::Right),
            Head("Age", Align::Right),
        ],
        empty: "No session runs.",
    };
    let row = |session: &SessionState| {
        let part = if session.pace.bytes_total == 0 {
            0.0
        } else {
            session.pace.bytes_done as f64 / session.pace.bytes_total as f64
        };
        let more = if session.pace.scanned { "" } else { "+" };
        let progress = format!("{} of {}{more}", size(session.pace.bytes_done), size(session.pace.bytes_total));
        let arrow = if session.direction == IN { "in" } else { "out" };
        let lanes = format!("{} {}, {}", session.pace.lanes, session.transport, session.protect);
        let silent = if session.pace.silent_s >= 5.0 {
            format!("silent for {}", span(session.pace.silent_s))
        } else {
            String::new()
        };
        let files = if session.files_failed > 0 { format!("{} failed", session.files_failed) } else { String::new() };
        vec![
            Cell::Two(session.client.clone(), session.peer.clone()),
            Cell::Two(session.what.clone(), session.session.chars().take(8).collect()),
            Cell::Bar(part, progress, Tone::Plain),
            Cell::Two(bits(session.pace.bytes_per_s as f64), arrow.to_owned()),
            Cell::Text(session.pace.eta_s.map_or_else(|| "unknown".to_owned(), span)),
            Cell::Two(session.pace.limited_by.unwrap_or("unknown").to_owned(), silent),
            Cell::Text(lanes),
            Cell::Two(session.files_committed.to_string(), files),
            Cell::Text(span(session.seconds)),
        ]
    };
    table.markup(sessions.iter().map(row).collect())
}

fn roots(roots: &[RootState]) -> Html {
    let table = Table {
        id: "roots",
        caption: "Roots and targets",
        heads: &[
            Head("Root", Align::Free),
            Head("Target", Align::Free),
            Head("State", Align::Free),
            Head("Fill", Align::Left),
            Head("Speed when busy", Align::Right),
            Head("p50", Align::Right),
            Head("p99", Align::Right),
            Head("Queue", Align::Right),
            Head("Written", Align::Right),
        ],
        empty: "No root is served, or none has been looked at yet.",
    };
    let mut rows = Vec::new();
    for root in roots {
        for target in &root.targets {
            rows.push(target_row(root, target));
        }
    }
    table.markup(rows)
}

fn target_row(root: &RootState, target: &TargetOf) -> Vec<Cell> {
    let rights = if root.takes_files { "takes files" } else { "for reading" };
    let limit = root.rate_limit_per_s.map_or(String::new(), |rate| format!("at most {}", bits(rate as f64)));
    let tone = match target.state {
        "ok" if root.flaws.is_empty() => Tone::Fine,
        "slow" | "full" => Tone::Doubtful,
        "read-only" if !root.takes_files => Tone::Fine,
        _ => Tone::Bad,
    };
    let milliseconds = |seconds: Option<f64>| seconds.map_or_else(|| "none".to_owned(), latency);
    let fill = match (target.fill, target.free_bytes) {
        (Some(fill), Some(free)) => {
            let tone = full(fill);
            Cell::Bar(fill, format!("{:.0} %, {} free", fill * 100.0, size(free)), tone)
        }
        _ => Cell::Text("unknown".to_owned()),
    };
    let flaw = match tone {
        Tone::Bad => root.flaws.first().cloned().unwrap_or_default(),
        _ => String::new(),
    };
    vec![
        Cell::Two(root.root.clone(), join(&[rights.to_owned(), limit])),
        Cell::Two(format!("target {}", target.target), target.dir.clone()),
        Cell::Pill(target.state.to_owned(), flaw, tone),
        fill,
        Cell::Text(target.busy_bytes_per_s.map_or_else(|| "none yet".to_owned(), |rate| bytes_rate(rate as f64))),
        Cell::Text(milliseconds(target.p50_s)),
        Cell::Text(milliseconds(target.p99_s)),
        Cell::Text(target.queued.to_string()),
        Cell::Text(size(target.written_bytes)),
    ]
}

fn paths(paths: &[PathOf]) -> Html {
    let table = Table {
        id: "paths",
        caption: "Lanes and paths",
        heads: &[
            Head("From", Align::Free),
            Head("Clients", Align::Free),
            Head("Sessions", Align::Right),
            Head("Lanes", Align::Right),
            Head("Over", Align::Left),
            Head("Receiving", Align::Right),
            Head("Sending", Align::Right),
        ],
        empty: "Nobody is connected.",
    };
    let row = |path: &PathOf| {
        vec![
            Cell::Text(path.peer.clone()),
            Cell::Text(path.clients.join(", ")),
            Cell::Text(path.sessions.to_string()),
            Cell::Text(path.lanes.to_string()),
            Cell::Text(path.transports.join(", ")),
            Cell::Text(bits(path.received_per_s as f64)),
            Cell::Text(bits(path.sent_per_s as f64)),
        ]
    };
    table.markup(paths.iter().map(row).collect())
}

fn faults(faults: &[FaultOf]) -> Html {
    let table = Table {
        id: "faults",
        caption: "Last faults",
        heads: &[
            Head("When", Align::Left),
            Head("Code", Align::Left),
            Head("Client", Align::Free),
            Head("What", Align::Free),
            Head("Why", Align::Free),
        ],
        empty: "There were none since the daemon began to serve.",
    };
    let row = |fault: &FaultOf| {
        vec![
            Cell::Text(fault.time.clone()),
            Cell::Pill(fault.code.to_owned(), String::new(), Tone::Plain),
            Cell::Text(fault.client.clone()),
            Cell::Text(fault.what.clone()),
            Cell::Text(fault.message.clone()),
        ]
    };
    table.markup(faults.iter().map(row).collect())
}

fn foot(status: &Status) -> Html {
    let mut html = Html::default();
    html.raw("<footer><p>As of <time>").text(&status.head.time).raw("</time>, process ").show(status.head.pid);
    if let Some(begun) = &status.head.begun {
        html.raw(", serving since <time>").text(begun).raw("</time>");
    }
    html.raw("</p><p>Key <code>").text(&status.head.key).raw("</code></p></footer>");
    html
}

/// How a part of a bound is shown.
fn full(part: f64) -> Tone {
    match part {
        part if part >= 0.95 => Tone::Bad,
        part if part >= 0.85 => Tone::Doubtful,
        _ => Tone::Plain,
    }
}

fn total(bytes: u64) -> String {
    format!("{} so far", size(bytes))
}

/// Bytes as `1.18 GB`.
fn size(bytes: u64) -> String {
    bytes_rate(bytes as f64).trim_end_matches("/s").to_owned()
}

fn latency(seconds: f64) -> String {
    match seconds * 1e3 {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1e3),
    }
}

/// The parts that there are, with commas.
fn join(parts: &[String]) -> String {
    parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
