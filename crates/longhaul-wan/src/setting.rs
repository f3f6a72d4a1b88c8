//! Owns the words that describe a path: `rate=1Gbit/s,rtt=100ms,loss=1e-3@4`. Takes text, changes a
//! [`Path`]. Must not know where the text comes from.

use std::str::FromStr;

use crate::path::{Blocked, Bursts, Loss, Path, Queue};
use crate::units::{bytes, number, share, time, wrong};
use crate::{Error, Rate};

/// Changes to a path, in order: `key=value`, with commas between them.
///
/// | key | value |
/// |---|---|
/// | `rate` | `1Gbit/s`, `125MB/s`, `none` |
/// | `rtt` | round trip, half of it this way: `100ms` |
/// | `delay` | this way alone: `50ms` |
/// | `queue` | `512KiB`, `1bdp`, `0.5bdp`; a policer's bucket in its place: `bucket:512KiB` |
/// | `loss` | `1e-3`, `0.1%`; in bursts of 4 packets on average: `1e-3@4`; Gilbert and Elliott: `ENTER:LEAVE:BAD[:GOOD]` |
/// | `duplicate`, `corrupt`, `corrupt-silently` | a share of packets |
/// | `reorder` | a share of packets, held back for 1 ms or as given: `1e-2@5ms` |
/// | `block` | `udp`, `strange-udp` (not QUIC), `tcp`, `icmp`, joined by `+`, or `none` |
/// | `hole` | packets above so many bytes vanish, or `none` |
/// | `overhead` | bytes on the wire for each packet besides its own |
/// | `link` | `down` or `up` |
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change(Vec<Setting>);

#[derive(Debug, Clone, PartialEq)]
enum Setting {
    Rate(Option<Rate>),
    Delay(std::time::Duration),
    Queue(Queue),
    Loss(Loss),
    Duplicate(f64),
    Reorder(f64, Option<std::time::Duration>),
    Corrupt(f64),
    CorruptSilently(f64),
    Blocked(Blocked),
    Hole(Option<u32>),
    Overhead(u32),
    Down(bool),
}

impl Change {
    /// One setting.
    ///
    /// # Errors
    /// If there is no such key, or its value is not understood.
    pub fn one(key: &str, value: &str) -> Result<Change, Error> {
        setting(key, value).map(|setting| Change(vec![setting]))
    }

    /// A change that takes the link down, or up again.
    #[must_use]
    pub fn down(down: bool) -> Change {
        Change(vec![Setting::Down(down)])
    }

    /// Adds further changes behind these.
    pub fn extend(&mut self, more: &Change) {
        self.0.extend_from_slice(&more.0);
    }

    /// Changes a path; settings that are not named stay as they are.
    pub fn apply(&self, path: &mut Path) {
        for setting in &self.0 {
            match *setting {
                Setting::Rate(rate) => path.rate = rate,
                Setting::Delay(delay) => path.delay = delay,
                Setting::Queue(queue) => path.queue = queue,
                Setting::Loss(loss) => path.loss = loss,
                Setting::Duplicate(share) => path.duplicate = share,
                Setting::Reorder(share, by) => {
                    path.reorder = share;
                    path.reorder_by = by.unwrap_or(path.reorder_by);
                }
                Setting::Corrupt(share) => path.corrupt = share,
                Setting::CorruptSilently(share) => path.corrupt_silently = share,
                Setting::Blocked(blocked) => path.blocked = blocked,
                Setting::Hole(hole) => path.hole = hole,
                Setting::Overhead(overhead) => path.overhead = overhead,
                Setting::Down(down) => path.down = down,
            }
        }
    }
}

impl FromStr for Change {
    type Err = Error;

    fn from_str(text: &str) -> Result<Change, Error> {
        let pairs = text.split(',').map(|pair| {
            let (key, value) = pair.split_once('=').ok_or_else(|| wrong("setting", pair, "key=value"))?;
            setting(key, value)
        });
        pairs.collect::<Result<_, _>>().map(Change)
    }
}

fn setting(key: &str, value: &str) -> Result<Setting, Error> {
    Ok(match key {
        "rate" => Setting::Rate(unless_none(value, str::parse)?),
        "rtt" => Setting::Delay(time(value)? / 2),
        "delay" => Setting::Delay(time(value)?),
        "queue" => Setting::Queue(queue(value)?),
        "loss" => Setting::Loss(loss(value)?),
        "duplicate" => Setting::Duplicate(share(value)?),
        "reorder" => reorder(value)?,
        "corrupt" => Setting::Corrupt(share(value)?),
        "corrupt-silently" => Setting::CorruptSilently(share(value)?),
        "block" => Setting::Blocked(blocked(value)?),
        "hole" => Setting::Hole(unless_none(value, packet_bytes)?),
        "overhead" => Setting::Overhead(packet_bytes(value)?),
        "link" => Setting::Down(down(value)?),
        _ => return Err(wrong("setting", key, KEYS)),
    })
}

fn unless_none<T>(value: &str, read: impl Fn(&str) -> Result<T, Error>) -> Result<Option<T>, Error> {
    if value == "none" { Ok(None) } else { read(value).map(Some) }
}

fn queue(value: &str) -> Result<Queue, Error> {
    if let Some(held) = value.strip_prefix("bucket:") {
        return bytes(held).map(Queue::Bucket);
    }
    let Some(times) = value.strip_suffix("bdp") else { return bytes(value).map(Queue::Bytes) };
    let times = number(times).filter(|times| *times <= QUEUE_BDPS_MAX);
    times.map(Queue::Bdp).ok_or_else(|| wrong("queue", value, "like 512KiB, 1bdp or bucket:512KiB"))
}

fn loss(value: &str) -> Result<Loss, Error> {
    if let Some((lost, packets)) = value.split_once('@') {
        let packets = number(packets).filter(|packets| (1.0..=1e9).contains(packets));
        let packets = packets.ok_or_else(|| wrong("length of bursts", value, "like 1e-3@4"))?;
        return Ok(Loss::in_bursts(share(lost)?, packets));
    }
    let parts = value.split(':').map(share).collect::<Result<Vec<_>, _>>()?;
    match parts[..] {
        [lost] => Ok(Loss::Independent(lost)),
        [enter, leave, bad] => Ok(Loss::Bursts(Bursts { enter, leave, bad, good: 0.0 })),
        [enter, leave, bad, good] => Ok(Loss::Bursts(Bursts { enter, leave, bad, good })),
        _ => Err(wrong("loss", value, "like 1e-3, 1e-3@4 or ENTER:LEAVE:BAD[:GOOD]")),
    }
}

fn reorder(value: &str) -> Result<Setting, Error> {
    match value.split_once('@') {
        Some((late, by)) => Ok(Setting::Reorder(share(late)?, Some(time(by)?))),
        None => Ok(Setting::Reorder(share(value)?, None)),
    }
}

fn blocked(value: &str) -> Result<Blocked, Error> {
    let mut blocked = Blocked::default();
    for protocol in value.split('+').filter(|_| value != "none") {
        match protocol {
            "tcp" => blocked.tcp = true,
            "udp" => blocked.udp = true,
            "strange-udp" => blocked.strange_udp = true,
            "icmp" => blocked.icmp = true,
            _ => return Err(wrong("protocol", protocol, "tcp, udp, strange-udp, icmp, joined by +, or none")),
        }
    }
    Ok(blocked)
}

fn down(value: &str) -> Result<bool, Error> {
    match value {
        "down" => Ok(true),
        "up" => Ok(false),
        _ => Err(wrong("state of a link", value, "down or up")),
    }
}

fn packet_bytes(value: &str) -> Result<u32, Error> {
    let fits = |bytes| u32::try_from(bytes).ok().filter(|bytes| *bytes <= u32::from(u16::MAX));
    fits(bytes(value)?).ok_or_else(|| wrong("size of a packet", value, "as bytes, up to 65535"))
}

const KEYS: &str = "as one of rate, rtt, delay, queue, loss, duplicate, reorder, corrupt, corrupt-silently, block, hole, \
                    overhead, link";
const QUEUE_BDPS_MAX: f64 = 1000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn after(text: &str) -> Path {
        let mut path = Path::default();
        text.parse::<Change>().unwrap().apply(&mut path);
        path
    }

    #[test]
    fn each_key_changes_what_it_names_and_nothing_else() {
        let even = Path::default;
        let udp_and_icmp = Blocked { udp: true, icmp: true, ..Blocked::default() };
        let chain = Bursts { enter: 0.1, leave: 0.2, bad: 0.5, good: 0.01 };
        for (text, path) in [
            ("rate=1Gbit/s", Path { rate: Some(Rate::mbit(1000)), ..even() }),
            ("rate=none", even()),
            ("rtt=100ms", Path { delay: Duration::from_millis(50), ..even() }),
            ("delay=100ms", Path { delay: Duration::from_millis(100), ..even() }),
            ("queue=512KiB", Path { queue: Queue::Bytes(524_288), ..even() }),
            ("queue=bucket:64KiB", Path { queue: Queue::Bucket(65_536), ..even() }),
            ("queue=0.5bdp", Path { queue: Queue::Bdp(0.5), ..even() }),
            ("loss=1e-3", Path { loss: Loss::Independent(1e-3), ..even() }),
            ("loss=1%@4", Path { loss: Loss::in_bursts(0.01, 4.0), ..even() }),
            ("loss=0.1:0.2:0.5:0.01", Path { loss: Loss::Bursts(chain), ..even() }),
            ("loss=0.1:0.2:0.5", Path { loss: Loss::Bursts(Bursts { good: 0.0, ..chain }), ..even() }),
            ("duplicate=0.1", Path { duplicate: 0.1, ..even() }),
            ("reorder=0.1", Path { reorder: 0.1, ..even() }),
            ("reorder=0.1@5ms", Path { reorder: 0.1, reorder_by: Duration::from_millis(5), ..even() }),
            ("corrupt=0.1", Path { corrupt: 0.1, ..even() }),
            ("corrupt-silently=1e-5", Path { corrupt_silently: 1e-5, ..even() }),
            ("block=udp+icmp", Path { blocked: udp_and_icmp, ..even() }),
            ("block=strange-udp", Path { blocked: Blocked { strange_udp: true, ..Blocked::default() }, ..even() }),
            ("block=none", even()),
            ("hole=1500", Path { hole: Some(1500), ..even() }),
            ("overhead=38", Path { overhead: 38, ..even() }),
            ("link=down", Path { down: true, ..even() }),
            ("link=down,link=up", even()),
        ] {
            assert_eq!(after(text), path, "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_with_the_way_to_write_it() {
        for text in [
            "",
            "rate",
            "rate=",
            "rate=1",
            "speed=1Gbit/s",
            "rtt=5",
            "queue=bdp",
            "queue=9999bdp",
            "queue=bucket:1bdp",
            "loss=2",
            "loss=1e-3@0",
            "loss=1:1",
            "loss=1:1:1:1:1",
            "reorder=0.1@5",
            "block=sctp",
            "hole=70000",
            "overhead=-1",
            "link=sideways",
            "rate=1Gbit/s,",
            "rate=1Gbit/s;rtt=1ms",
        ] {
            assert!(text.parse::<Change>().is_err(), "{text}");
        }
        let said = Change::one("rate", "5").unwrap_err().to_string();
        assert_eq!(said, r#"no rate: "5"; it is written like 1Gbit/s or 125MB/s"#);
    }
}
