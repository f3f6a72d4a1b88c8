//! Owns the command line. Takes words, gives the description of a network. Must not make a network.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use longhaul_wan::{Change, Config, Direction, Error, Link, Step, Tuning, units};

/// Run a command at one end of an emulated wide-area network
///
/// Two hosts are made (network namespaces, without names) and joined by links. COMMAND runs on the
/// near one and its exit code is this program's; $WAN_NEAR and $WAN_FAR are the addresses
/// ($WAN_NEAR6 and $WAN_FAR6 for IPv6; $WAN_NEAR_1 and so on for further links). When this program
/// ends or dies, so does the network. Needs root, or unprivileged user namespaces.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArgs,
    /// Bytes of the largest packet [default: 1500]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<String>,
    /// A link of its own settings over the common ones: `rate=1Gbit/s,mtu=9000,...`; repeat for
    /// several links
    #[arg(long, value_name = "KEY=VALUE,...")]
    link: Vec<String>,
    /// Settings for the way from near to far only
    #[arg(long, value_name = "KEY=VALUE,...")]
    forward: Vec<String>,
    /// Settings for the way from far to near only
    #[arg(long, value_name = "KEY=VALUE,...")]
    backward: Vec<String>,
    /// Take links down after AT, for a time: `5s+2s`, or `5s+2s:1` for link 1 alone; repeatable
    #[arg(long, value_name = "AT+FOR[:LINK]")]
    outage: Vec<String>,
    /// Change settings after AT: `5s:rate=10Mbit/s`, or `5s:1.forward:...` for one link, one way;
    /// repeatable
    #[arg(long, value_name = "AT:[LINK[.WAY]:]KEY=VALUE,...")]
    at: Vec<String>,
    /// The seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    hosts: HostArgs,
    /// Write what happened to packets, as JSON, to a file at the end; `-` is stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) counters: Option<PathBuf>,
    /// A line for the shell on the far host, started first and ended with COMMAND
    #[arg(long, value_name = "LINE")]
    pub(crate) far: Option<String>,
    /// What to run on the near host
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Settings of the hosts.
#[derive(Debug, clap::Args)]
struct HostArgs {
    /// Leave checksums, and the cutting of what programs send, to the hosts: devices do neither
    #[arg(long)]
    no_offloads: bool,
    /// Leave the limits of TCP's buffers as they are on this host, instead of raising them to 512
    /// MiB
    #[arg(long)]
    host_buffers: bool,
    /// A kernel setting for both hosts, like `net.ipv4.tcp_mtu_probing=1`; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    sysctl: Vec<String>,
}

/// Settings of paths, for both directions of all links.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Paths, both ways")]
struct PathArgs {
    /// Bits per second, like `1Gbit/s` [default: none]
    #[arg(long)]
    rate: Option<String>,
    /// Round trip, like `100ms` [default: 0]
    #[arg(long, value_name = "TIME")]
    rtt: Option<String>,
    /// What may wait for the rate: `512KiB`, `0.5bdp`; or a policer's bucket, `bucket:512KiB`
    /// [default: 1bdp, at least 256 KiB]
    #[arg(long)]
    queue: Option<String>,
    /// Share of packets lost: `1e-3`, in bursts of 4 on average `1e-3@4`, Gilbert-Elliott
    /// `ENTER:LEAVE:BAD[:GOOD]`
    #[arg(long)]
    loss: Option<String>,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE")]
    duplicate: Option<String>,
    /// Share of packets held back for 1 ms, or as in `1e-2@5ms`
    #[arg(long, value_name = "SHARE[@TIME]")]
    reorder: Option<String>,
    /// Share of packets in which a bit changes and the checksum tells
    #[arg(long, value_name = "SHARE")]
    corrupt: Option<String>,
    /// Share of packets in which a bit changes and the checksum is made to fit
    #[arg(long, value_name = "SHARE")]
    corrupt_silently: Option<String>,
    /// Protocols that do not pass: `udp`, `icmp`, `tcp`, joined by `+`
    #[arg(long, value_name = "PROTOCOLS")]
    block: Option<String>,
    /// Packets above so many bytes vanish without a word
    #[arg(long, value_name = "BYTES")]
    hole: Option<String>,
    /// Bytes that each packet costs the rate besides its own, like 38 on Ethernet [default: 0]
    #[arg(long, value_name = "BYTES")]
    overhead: Option<String>,
}

impl PathArgs {
    fn change(&self) -> Result<Change, Error> {
        let given = [
            ("rate", &self.rate),
            ("rtt", &self.rtt),
            ("queue", &self.queue),
            ("loss", &self.loss),
            ("duplicate", &self.duplicate),
            ("reorder", &self.reorder),
            ("corrupt", &self.corrupt),
            ("corrupt-silently", &self.corrupt_silently),
            ("block", &self.block),
            ("hole", &self.hole),
            ("overhead", &self.overhead),
        ];
        let mut all = Change::default();
        for (key, value) in given {
            if let Some(value) = value {
                all.extend(&Change::one(key, value)?);
            }
        }
        Ok(all)
    }
}

impl Args {
    /// The network that the words describe.
    pub(crate) fn config(&self) -> Result<Config, Error> {
        let mut common = Link { offloads: !self.hosts.no_offloads, ..Link::default() };
        common.apply(&self.path.change()?);
        if let Some(mtu) = &self.mtu {
            common.mtu = read_mtu(mtu)?;
        }
        let mut links = vec![common.clone(); self.link.len().max(1)];
        for (link, text) in links.iter_mut().zip(&self.link) {
            set(link, text)?;
        }
        for link in &mut links {
            apply_all(&self.forward, &mut link.forward)?;
            apply_all(&self.backward, &mut link.backward)?;
        }
        for text in &self.outage {
            schedule_outage(&mut links, text)?;
        }
        for text in &self.at {
            schedule_change(&mut links, text)?;
        }
        let pair = |text: &String| {
            let pair = text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
            pair.ok_or_else(|| wrong("kernel setting", text, "key=value"))
        };
        let sysctls = self.hosts.sysctl.iter().map(pair).collect::<Result<_, _>>()?;
        Ok(Config { links, seed: self.seed, tuning: Tuning { large_buffers: !self.hosts.host_buffers, sysctls } })
    }
}

/// Applies settings to one link. The MTU belongs to the link, all others to its paths.
fn set(link: &mut Link, text: &str) -> Result<(), Error> {
    for pair in text.split(',') {
        match pair.strip_prefix("mtu=") {
            Some(mtu) => link.mtu = read_mtu(mtu)?,
            None => link.apply(&pair.parse()?),
        }
    }
    Ok(())
}

fn apply_all(texts: &[String], path: &mut longhaul_wan::Path) -> Result<(), Error> {
    texts.iter().try_for_each(|text| text.parse::<Change>().map(|change| change.apply(path)))
}

fn schedule_outage(links: &mut [Link], text: &str) -> Result<(), Error> {
    let (times, only) = text.split_once(':').map_or((text, None), |(times, link)| (times, Some(link)));
    let times = times.split_once('+').ok_or_else(|| wrong("outage", text, "like 5s+2s"))?;
    let (at, time) = (units::time(times.0)?, units::time(times.1)?);
    for link in which(links, only, text)? {
        link.cut(at, time);
    }
    Ok(())
}

fn schedule_change(links: &mut [Link], text: &str) -> Result<(), Error> {
    let written = || wrong("change", text, "like 5s:rate=10Mbit/s or 5s:0.forward:loss=1e-2");
    let (at, rest) = text.split_once(':').ok_or_else(written)?;
    let at: Duration = units::time(at)?;
    // A loss may have colons of its own, but they come after the first `=`.
    let (target, settings) = match rest.split_once(':') {
        Some((target, settings)) if !target.contains('=') => (Some(target), settings),
        _ => (None, rest),
    };
    let (link, way) = target.map_or((None, None), |target| match target.split_once('.') {
        Some((link, way)) => (Some(link), Some(way)),
        None => (Some(target), None),
    });
    let direction = match way {
        None => None,
        Some("forward") => Some(Direction::Forward),
        Some("backward") => Some(Direction::Backward),
        Some(_) => return Err(written()),
    };
    let change: Change = settings.parse()?;
    for link in which(links, link, text)? {
        link.schedule.push(Step { at, direction, change: change.clone() });
    }
    Ok(())
}

/// The link of a number, or all links for `None`.
fn which<'a>(links: &'a mut [Link], number: Option<&str>, text: &str) -> Result<&'a mut [Link], Error> {
    let Some(number) = number else { return Ok(links) };
    let index = number.parse::<usize>().ok().filter(|index| *index < links.len());
    let index = index.ok_or_else(|| wrong("link", text, "with the number of a link, from 0"))?;
    Ok(&mut links[index..=index])
}

fn read_mtu(text: &str) -> Result<u32, Error> {
    let bytes = units::bytes(text)?;
    u32::try_from(bytes).map_err(|_| wrong("MTU", text, "as bytes, from 1280 to 65535"))
}

fn wrong(what: &'static str, text: &str, wanted: &'static str) -> Error {
    Error::Setting { what, text: text.to_owned(), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_wan::{Loss, Rate};

    fn config(words: &str) -> Result<Config, Error> {
        let words = format!("longhaul-wan {words} -- true");
        Args::try_parse_from(words.split_ascii_whitespace()).expect("known options").config()
    }

    #[test]
    fn common_settings_hold_for_all_links_and_both_ways_and_a_links_own_win() {
        let config =
            config("--rate 1Gbit/s --rtt 100ms --mtu 9000 --link loss=1% --link rate=2Mbit/s,mtu=1400").unwrap();
        let [first, second] = &config.links[..] else { panic!("two links") };
        assert_eq!(
            (first.mtu, first.forward.rate, first.forward.loss),
            (9000, Some(Rate::mbit(1000)), Loss::Independent(0.01))
        );
        assert_eq!((second.mtu, second.backward.rate), (1400, Some(Rate::mbit(2))));
        assert_eq!((first.forward.delay, &first.backward), (Duration::from_millis(50), &first.forward));
    }

    #[test]
    fn each_way_can_be_set_alone() {
        let config = config("--rate 10Mbit/s --backward rate=1Mbit/s,delay=3ms").unwrap();
        let link = &config.links[0];
        assert_eq!((link.forward.rate, link.backward.rate), (Some(Rate::mbit(10)), Some(Rate::mbit(1))));
        assert_eq!((link.forward.delay, link.backward.delay), (Duration::ZERO, Duration::from_millis(3)));
    }

    #[test]
    fn outages_and_changes_go_to_the_links_and_ways_they_name() {
        let config = config(
            "--link rate=1Gbit/s --link rate=1Gbit/s --outage 5s+2s --outage 1s+1s:1 --at 3s:rate=none \
             --at 4s:1.backward:loss=0.1:0.2:0.3 --at 4s:loss=0.1:0.2:0.3",
        )
        .unwrap();
        let steps = |link: usize| -> Vec<_> {
            config.links[link].schedule.iter().map(|step| (step.at.as_secs(), step.direction)).collect()
        };
        let backward = Some(Direction::Backward);
        assert_eq!(steps(0), [(5, None), (7, None), (3, None), (4, None)]);
        assert_eq!(steps(1), [(5, None), (7, None), (1, None), (2, None), (3, None), (4, backward), (4, None)]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for words in [
            "--rate 5",
            "--mtu x",
            "--link mtu=x",
            "--link nonsense",
            "--outage 5s",
            "--outage 5s+1s:7",
            "--at 5s",
            "--at rate=1Mbit/s",
            "--at 5s:9:rate=1Mbit/s",
            "--at 5s:0.sideways:rate=1Mbit/s",
            "--sysctl x",
            "--forward rtt",
            "--hole 1e9",
        ] {
            assert!(config(words).is_err(), "{words}");
        }
    }
}
