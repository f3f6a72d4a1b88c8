//! Writes the metrics of a daemon as OpenMetrics.
//!
//! In: the engine's figures and those of this process. Out: one text. Units are bytes, seconds and
//! ratios; labels are names of the configuration, numbers of targets, and words of this program:
//! never a path or an address. It keeps nothing between two asks.

use std::sync::atomic::AtomicU64;
use std::time::UNIX_EPOCH;

use longhaul_engine::{MovedSums, RootTarget, ServiceFigures, ServiceHandle, WatchFigures};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::Watched;
use super::process::ProcessFigures;
use super::ready;
use crate::output::VersionBody;

type Labels = Vec<(&'static str, String)>;
type GaugeOfNumbers = Gauge<f64, AtomicU64>;

/// A metric that is being written: its values, by labels.
struct Gauges(Family<Labels, GaugeOfNumbers>);

/// The same for one that only grows.
struct Counters(Family<Labels, Counter>);

impl Gauges {
    fn new(registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>) -> Gauges {
        let family = Family::default();
        match unit {
            Some(unit) => registry.register_with_unit(name, help, unit, family.clone()),
            None => registry.register(name, help, family.clone()),
        }
        Gauges(family)
    }

    fn set(&self, labels: Labels, value: f64) {
        self.0.get_or_create(&labels).set(value);
    }
}

impl Counters {
    fn new(registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>) -> Counters {
        let family = Family::default();
        match unit {
            Some(unit) => registry.register_with_unit(name, help, unit, family.clone()),
            None => registry.register(name, help, family.clone()),
        }
        Counters(family)
    }

    fn set(&self, labels: Labels, value: u64) {
        self.0.get_or_create(&labels).inc_by(value);
    }
}

impl Watched {
    /// All metrics.
    pub(super) fn metrics(&self) -> String {
        let mut registry = Registry::default();
        process(registry.sub_registry_with_prefix("process"), self.begun());
        let ours = registry.sub_registry_with_prefix("longhaul");
        let labels = VersionBody::new().labels();
        ours.register("build", "The build that runs", Info::new(labels));
        gauge(ours, "ready", "Whether new sessions may be sent here", f64::from(u8::from(self.unready().is_empty())));
        if let Some((service, _)) = self.0.running.get() {
            sessions(ours, &service.status(), service);
            let watched = service.watch();
            moved(ours, &watched);
            refusals(ours, &watched);
        }
        self.roots(ours);
        if let Some(audit) = &self.0.audit {
            let figures = audit.figures();
            count(ours, "audit_records", "Records in the audit log", figures.written);
            count(ours, "audit_records_lost", "Records of the audit log that were lost", figures.lost);
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }

    fn begun(&self) -> Option<f64> {
        let begun = self.0.running.get()?.0.status().begun;
        begun.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
    }

    fn roots(&self, registry: &mut Registry) {
        let Some((_, roots)) = self.0.roots.last() else { return };
        let up = Gauges::new(registry, "target_up", "Whether a target takes what the root allows", None);
        let free = Gauges::new(registry, "target_free", "Free on the file system of a target", Some(Unit::Bytes));
        let size = Gauges::new(registry, "target_size", "The file system of a target", Some(Unit::Bytes));
        let fill = Gauges::new(
            registry,
            "target_fill",
            "Taken of the file system of a target",
            Some(Unit::Other("ratio".to_owned())),
        );
        let wrote = Counters::new(registry, "target_written", "Written to a target", Some(Unit::Bytes));
        let queued = Gauges::new(registry, "target_queued_requests", "Writes that wait or are under way", None);
        let latency = Gauges::new(
            registry,
            "target_write_latency",
            "How long recent writes to a target took, by quantile",
            Some(Unit::Seconds),
        );
        for root in &roots {
            for target in &root.targets {
                let labels = || vec![("root", root.name.clone()), ("target", target.number.to_string())];
                let alone = longhaul_engine::RootFigures { targets: vec![target.clone()], ..root.clone() };
                up.set(labels(), f64::from(u8::from(ready::of_root(&alone).is_empty())));
                if let (Some(there), Some(all)) = (target.free_bytes, target.total_bytes) {
                    free.set(labels(), there as f64);
                    size.set(labels(), all as f64);
                    fill.set(labels(), fill_of(target).unwrap_or(0.0));
                }
                wrote.set(labels(), target.written_bytes);
                queued.set(labels(), target.queued as f64);
                for (quantile, took) in
                    target.latency.iter().flat_map(|l| [("0.5", l.p50), ("0.9", l.p90), ("0.99", l.p99)])
                {
                    let labels = labels().into_iter().chain([("quantile", quantile.to_owned())]).collect();
                    latency.set(labels, took.as_secs_f64());
                }
            }
        }
    }
}

/// The part of a file system that is taken, 0 to 1. `None`: not known.
pub(super) fn fill_of(target: &RootTarget) -> Option<f64> {
    let (free, all) = (target.free_bytes?, target.total_bytes.filter(|all| *all > 0)?);
    Some(1.0 - free.min(all) as f64 / all as f64)
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: f64) {
    let metric = GaugeOfNumbers::default();
    metric.set(value);
    registry.register(name, help, metric);
}

fn count(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let metric: Counter = Counter::default();
    metric.inc_by(value);
    registry.register(name, help, metric);
}

fn process(registry: &mut Registry, begun: Option<f64>) {
    let now = ProcessFigures::now();
    let seconds = |registry: &mut Registry, name, help, value: Option<f64>| {
        let metric = GaugeOfNumbers::default();
        metric.set(value.unwrap_or(0.0));
        registry.register_with_unit(name, help, Unit::Seconds, metric);
    };
    seconds(registry, "start_time", "When the daemon began to serve, since the epoch", begun);
    let cpu: Counter<f64, AtomicU64> = Counter::default();
    cpu.inc_by(now.cpu_seconds.unwrap_or(0.0));
    registry.register_with_unit("cpu", "Processor time", Unit::Seconds, cpu);
    gauge(registry, "open_fds", "Descriptors that are open", now.descriptors.unwrap_or(0) as f64);
    gauge(
        registry,
        "max_fds",
        "Descriptors that may be open",
        now.descriptors_max.map_or(f64::INFINITY, |max| max as f64),
    );
    let resident = GaugeOfNumbers::default();
    resident.set(now.resident_bytes.unwrap_or(0) as f64);
    registry.register_with_unit("resident_memory", "Memory that is resident", Unit::Bytes, resident);
}

fn sessions(registry: &mut Registry, status: &ServiceFigures, service: &ServiceHandle) {
    gauge(registry, "draining", "Whether the daemon lets no session begin", f64::from(u8::from(status.drains)));
    gauge(registry, "sessions_limit", "Sessions that may run at a time", status.sessions_max as f64);
    let running = Gauges::new(registry, "sessions", "Sessions that run", None);
    for client in service.clients() {
        running.set(vec![("client", client.name)], client.sessions as f64);
    }
    for (name, help, bytes) in [
        ("memory_taken", "Memory that sessions and listings have", status.memory_taken),
        ("memory_limit", "Memory that they may have", status.memory_max),
    ] {
        let metric = GaugeOfNumbers::default();
        metric.set(bytes as f64);
        registry.register_with_unit(name, help, Unit::Bytes, metric);
    }
}

fn moved(registry: &mut Registry, watched: &WatchFigures) {
    let received = Counters::new(registry, "received", "Payload that clients sent", Some(Unit::Bytes));
    let sent = Counters::new(registry, "sent", "Payload that was sent to clients", Some(Unit::Bytes));
    let files = Counters::new(registry, "files", "Files and links that were settled, by result", None);
    for ((root, client), sums) in &watched.sums.moved {
        let MovedSums { received_bytes, sent_bytes, files_committed, files_failed } = *sums;
        let labels = || vec![("root", root.clone()), ("client", client.clone())];
        received.set(labels(), received_bytes);
        sent.set(labels(), sent_bytes);
        for (result, count) in [("committed", files_committed), ("failed", files_failed)] {
            files.set(labels().into_iter().chain([("result", result.to_owned())]).collect(), count);
        }
    }
    let ended = Counters::new(registry, "sessions_ended", "Sessions that ended, by result", None);
    for ((transport, code), count) in &watched.sums.ended {
        ended.set(vec![("transport", (*transport).to_owned()), ("code", (*code).to_owned())], *count);
    }
    count(registry, "listings", "Listings that were answered", watched.sums.listings);
}

fn refusals(registry: &mut Registry, watched: &WatchFigures) {
    let refused = Counters::new(registry, "requests_refused", "Requests of known clients that were refused", None);
    for (code, count) in &watched.sums.refused {
        refused.set(vec![("code", (*code).to_owned())], *count);
    }
    let turned = Counters::new(registry, "connections_refused", "Connections that were turned away", None);
    let sums = &watched.sums;
    let reasons = [("unknown_key", sums.strangers), ("crowded", sums.crowded), ("gave_way", sums.gave_way)];
    for (reason, count) in reasons {
        turned.set(vec![("reason", reason.to_owned())], count);
    }
    for (name, help, value) in [
        ("connections_unauthenticated", "Connections that have not shown whose they are", watched.greeting),
        ("connections_unauthenticated_limit", "As many as there may be", watched.greeting_max),
        ("connections_waiting", "Connections of clients that have not begun anything", watched.waiting),
    ] {
        gauge(registry, name, help, value as f64);
    }
}
