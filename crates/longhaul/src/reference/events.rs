//! `docs/EVENTS.md`: every event of `--json`, with its fields.
//!
//! It owns which struct is the body of which event. Declarations and docs come in from the sources
//! of `output`; a page goes to `reference`. It must not know any field.

use std::collections::{BTreeMap, BTreeSet};

use super::page::Page;
use super::source::{Part, Shape, shapes};

/// An event: its name, the command where several events have the name, and the struct of its
/// fields.
type Event = (&'static str, Option<&'static str>, &'static str);

const EVENTS: [Event; 74] = [
    ("start", None, "StartBody"),
    ("progress", None, "ProgressBody"),
    ("file", None, "FileBody"),
    ("lanes", None, "LanesBody"),
    ("road", None, "RoadBody"),
    ("paths", None, "PathsBody"),
    ("targets", None, "TargetsBody"),
    ("at_risk", None, "AtRiskBody"),
    ("not_kept", None, "NotKeptBody"),
    ("left", None, "LeftBody"),
    ("unheard", None, "UnheardBody"),
    ("deliveries", None, "DeliveriesBody"),
    ("fault", None, "FaultBody"),
    ("entry", None, "EntryBody"),
    ("sync", None, "SyncBody"),
    ("removal", None, "RemovalBody"),
    ("removal_plan", None, "RemovalPlanBody"),
    ("summary", Some("sync --delete"), "RemovalSummaryBody"),
    ("check", None, "CheckBody"),
    ("summary", Some("check"), "CheckSummaryBody"),
    ("manifest", None, "SealedBody"),
    ("manifest_progress", None, "ManifestProgressBody"),
    ("item", None, "ItemBody"),
    ("difference", None, "DifferenceBody"),
    ("summary", Some("manifest"), "ManifestSummaryBody"),
    ("summary", Some("manifest diff"), "DiffSummaryBody"),
    ("inconsistency", None, "InconsistencyBody"),
    ("summary", Some("manifest consistency"), "ConsistencySummaryBody"),
    ("set_continued", None, "SetContinuedBody"),
    ("set_copy", None, "SetCopyBody"),
    ("set_file", None, "SetFileBody"),
    ("set_lost", None, "SetLostBody"),
    ("set_move", None, "SetMoveBody"),
    ("set_orphan", None, "SetOrphanBody"),
    ("set_target", None, "SetTargetBody"),
    ("summary", Some("set"), "SetSummaryBody"),
    ("job_campaign", None, "JobCampaignBody"),
    ("job_planned", None, "JobPlannedBody"),
    ("job_part", None, "JobPartBody"),
    ("job_left", None, "JobLeftBody"),
    ("job_held", None, "JobHeldBody"),
    ("job_hook", None, "JobHookBody"),
    ("job_omitted", None, "JobOmittedBody"),
    ("job_fault", None, "JobFaultBody"),
    ("job_site", None, "JobSiteBody"),
    ("job_link", None, "JobLinkRulesBody"),
    ("job_shard", None, "JobShardBody"),
    ("job_bad_file", None, "JobBadFileBody"),
    ("job_mended", None, "JobMendedBody"),
    ("job_verified", None, "JobVerifiedBody"),
    ("job_verify", None, "JobVerifyBody"),
    ("summary", Some("job"), "JobSummaryBody"),
    ("listening", None, "Listening"),
    ("admin_status", None, "AdminStatusBody"),
    ("admin_session", None, "AdminSessionBody"),
    ("admin_client", None, "AdminClientBody"),
    ("admin_done", None, "AdminDoneBody"),
    ("warning", None, "WarningBody"),
    ("version", None, "VersionBody"),
    ("summary", None, "Summary"),
    ("bench_net", None, "NetBody"),
    ("summary", Some("bench net"), "BenchSummaryBody"),
    ("bench_matrix", None, "RunBody"),
    ("summary", Some("bench matrix"), "MatrixSummaryBody"),
    ("bench_disk", None, "SweepBody"),
    ("summary", Some("bench disk"), "SweepSummaryBody"),
    ("bench_iops", None, "IopsBody"),
    ("summary", Some("bench iops"), "LabSummaryBody"),
    ("bench_pileup", None, "PileupBody"),
    ("summary", Some("bench pileup"), "LabSummaryBody"),
    ("bench_fill", None, "FillBody"),
    ("summary", Some("bench fill"), "FillSummaryBody"),
    ("bench_scan", None, "RegionBody"),
    ("summary", Some("bench scan"), "ScanSummaryBody"),
];

/// The struct of the fields that every event has.
const FRAME: &str = "Line";

type Row = [String; 3];

#[test]
fn events_md_is_what_the_structs_say() {
    super::hold("EVENTS.md", &document());
}

#[test]
fn every_event_that_is_written_has_its_place_in_the_reference() {
    let texts = super::read_all("crates/longhaul/src/output");
    let calls = texts.iter().flat_map(|text| text.split(".say(").skip(1));
    let said = calls.filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next());
    let listed: BTreeSet<&str> = EVENTS.iter().map(|(kind, _, _)| *kind).collect();
    assert_eq!(said.collect::<BTreeSet<_>>(), listed);
}

fn document() -> String {
    let mut bodies = Bodies::read();
    let mut page = Page::new("Events");
    page.paragraph(
        "With `--json` every line of standard output is an event: one JSON object. Its fields stand in the order of \
         these tables; fields and events are only ever added. `a.b` is the field `b` of the object `a`, and `a[].b` \
         that of each object in the array `a`. Names end in their unit: `_s` is seconds, `_per_s` is per second.",
    );
    page.heading("Every event");
    let frame = bodies.rows(FRAME, "");
    page.table(HEADS, &frame);
    for (kind, command, body) in EVENTS {
        page.heading(&command.map_or_else(|| format!("`{kind}`"), |command| format!("`{kind}` of `{command}`")));
        let docs = bodies.shape(body).docs.clone();
        assert!(!docs.is_empty(), "{body} has no docs");
        page.paragraph(&docs);
        let rows = bodies.rows(body, "");
        page.table(HEADS, &rows);
    }
    let unreached: Vec<_> = bodies.shapes.keys().filter(|name| !bodies.reached.contains(*name)).collect();
    assert!(unreached.is_empty(), "these are serialized and in no event of EVENTS: {unreached:?}");
    page.end()
}

const HEADS: [&str; 3] = ["field", "type", "meaning"];

/// The structs and enums that are serialized.
struct Bodies {
    shapes: BTreeMap<String, Shape>,
    reached: BTreeSet<String>,
}

impl Bodies {
    fn read() -> Bodies {
        let all = super::read_all("crates/longhaul/src/output");
        let serialized = all.iter().flat_map(|text| shapes(text)).filter(|shape| shape.has("Serialize"));
        let shapes = serialized.map(|shape| (shape.name.clone(), shape)).collect();
        Bodies { shapes, reached: BTreeSet::new() }
    }

    fn shape(&self, name: &str) -> &Shape {
        self.shapes.get(name).unwrap_or_else(|| panic!("no struct {name} is serialized"))
    }

    /// The rows of a struct's fields, each with this prefix.
    fn rows(&mut self, name: &str, prefix: &str) -> Vec<Row> {
        self.reached.insert(name.to_owned());
        let parts = std::mem::take(&mut self.shapes.get_mut(name).unwrap_or_else(|| panic!("no {name}")).parts);
        let rows = parts.iter().flat_map(|part| self.rows_of_part(name, part, prefix)).collect();
        if let Some(shape) = self.shapes.get_mut(name) {
            shape.parts = parts;
        }
        rows
    }

    fn rows_of_part(&mut self, owner: &str, part: &Part, prefix: &str) -> Vec<Row> {
        assert!(!part.docs.is_empty(), "{owner}::{} has no docs", part.name);
        let inner = bare(&part.kind);
        let known = self.shapes.contains_key(inner);
        if part.has("flatten") {
            // The fields of every event stand around a body that has tables of its own.
            return if known { self.flattened(part, inner, prefix) } else { Vec::new() };
        }
        let name = format!("{prefix}{}", part.given("rename").unwrap_or(&part.name));
        let kind = self.json_type(part);
        let mut rows = vec![[format!("`{name}`"), kind, part.docs.clone()]];
        if known {
            let step = if part.kind.contains("Vec<") { "[]." } else { "." };
            rows.extend(self.rows(inner, &format!("{name}{step}")));
        }
        rows
    }

    /// The fields of a struct, or the alternatives of an enum, as fields of the event itself.
    fn flattened(&mut self, part: &Part, inner: &str, prefix: &str) -> Vec<Row> {
        let is_choice = self.shape(inner).is_enum;
        let mut rows = self.rows(inner, prefix);
        for [_, kind, docs] in &mut rows {
            if part.kind.starts_with("Option<") {
                *kind += ", or absent";
            }
            if is_choice {
                *kind += ", or absent";
                *docs = format!("{} {docs}", part.docs);
            }
        }
        rows
    }

    fn json_type(&self, part: &Part) -> String {
        let absent = part.has("skip_serializing_if");
        let optional = part.kind.strip_prefix("Option<").and_then(|kind| kind.strip_suffix('>'));
        let kind = optional.unwrap_or(&part.kind);
        let written = part.given("serialize_with");
        let mut text = if written.is_some() { "object of numbers".to_owned() } else { self.json_of(kind) };
        match (absent, optional) {
            (true, _) => text += ", or absent",
            (false, Some(_)) => text += " or null",
            (false, None) => {}
        }
        text
    }

    fn json_of(&self, kind: &str) -> String {
        let kind = kind.trim_start_matches('&').trim_start_matches("'a ").trim_start_matches("'static ");
        if let Some(of) = within(kind, "Vec<", ">").or_else(|| within(kind, "[", "]")) {
            return format!("array of {}s", self.json_of(of));
        }
        if let Some((_, value)) = within(kind, "BTreeMap<", ">").and_then(|pair| pair.split_once(", ")) {
            return format!("object of {}s", self.json_of(value));
        }
        match kind {
            "str" | "String" | "Cow<'a, str>" | "Cow<'static, str>" => "string".to_owned(),
            "bool" => "boolean".to_owned(),
            "u8" | "u16" | "u32" | "u64" | "usize" => "integer".to_owned(),
            "f64" => "number".to_owned(),
            // They are serialized as the list of their names.
            "Rights" => "array of strings".to_owned(),
            _ if self.shapes.contains_key(bare(kind)) => "object".to_owned(),
            _ => panic!("nothing is known of how {kind} is serialized"),
        }
    }
}

fn within<'a>(text: &'a str, opening: &str, closing: &str) -> Option<&'a str> {
    text.strip_prefix(opening)?.strip_suffix(closing)
}

/// The name of a type without what holds it and without its lifetimes.
fn bare(kind: &str) -> &str {
    let inner = within(kind, "Option<", ">").or_else(|| within(kind, "Vec<", ">")).unwrap_or(kind);
    inner.split('<').next().unwrap_or(inner)
}
