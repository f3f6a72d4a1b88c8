//! Decides where a daemon dials for a client that orders it to fetch: nowhere, but where its
//! administrator allows.
//!
//! In: rules as they are written in the configuration, a host and its resolved addresses. Out:
//! whether an address may be dialled. It resolves nothing and dials nothing.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use longhaul_net::Identity;
use serde::{Deserialize, Serialize};

/// The daemon as others know it: whom it is, and where it goes.
pub(super) struct Abroad {
    /// Its key.
    pub(super) identity: Arc<Identity>,
    /// Where it dials for its clients.
    pub(super) dial: Vec<DialRule>,
}

/// A rule that lets a daemon dial some addresses for its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DialRule {
    place: DialPlace,
    port: u16,
}

/// The hosts of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum DialPlace {
    /// A host that is ordered by this name, at a public address.
    Name(String),
    /// Any host with an address whose first bits are these, under whatever name.
    Net { first: IpAddr, bits: u8 },
}

/// The text is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialRuleError {
    /// It is neither a name nor an address.
    #[error("this is no host name, no address and no network as 192.0.2.0/24, with a port behind it or without")]
    Form,
    /// Bits of the address are set behind the prefix.
    #[error("bits of the address are set behind its prefix: 192.0.2.0/24, not 192.0.2.7/24")]
    HostBits,
}

impl DialRule {
    /// Reads `HOST`, `HOST:PORT`, `NET/BITS` or `NET/BITS:PORT`; an IPv6 network with a port stands
    /// in brackets, as `[2001:db8::]/32:7214`. Without a port `port` is meant.
    ///
    /// # Errors
    /// [`DialRuleError`].
    pub fn parse(text: &str, port: u16) -> Result<DialRule, DialRuleError> {
        let form = DialRuleError::Form;
        let number = |digits: &str| digits.parse::<u16>().ok().filter(|port| *port > 0).ok_or(form);
        let (host, rest) = match text.strip_prefix('[') {
            Some(inner) => inner.split_once(']').ok_or(form)?,
            None => match text.matches(':').count() {
                // An IPv6 address or network without a port.
                2.. => text.split_at(text.find('/').unwrap_or(text.len())),
                _ => text.split_at(text.find(['/', ':']).unwrap_or(text.len())),
            },
        };
        let (bits, port) = match (rest.strip_prefix('/'), rest.strip_prefix(':')) {
            (Some(bits), _) => match bits.split_once(':') {
                Some((bits, port)) => (Some(bits), number(port)?),
                None => (Some(bits), port),
            },
            (None, Some(port)) => (None, number(port)?),
            (None, None) if rest.is_empty() => (None, port),
            (None, None) => return Err(form),
        };
        let bits = bits.map(|bits| bits.parse::<u8>().map_err(|_| form)).transpose()?;
        let place = match (host.parse::<IpAddr>(), bits) {
            (Ok(first), bits) => net(first, bits)?,
            (Err(_), None) if is_name(host) && !text.starts_with('[') => {
                DialPlace::Name(bare(host).to_ascii_lowercase())
            }
            _ => return Err(form),
        };
        Ok(DialRule { place, port })
    }

    /// The port to which it leads.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it may allow to dial a host that was ordered by this name, at whatever address the
    /// name leads to. If not, the name need not be looked up.
    pub(super) fn may_allow(&self, host: &str, port: u16) -> bool {
        self.port == port
            && match (&self.place, host.parse::<IpAddr>()) {
                (DialPlace::Name(name), _) => name.eq_ignore_ascii_case(bare(host)),
                (DialPlace::Net { first, bits }, Ok(ip)) => has_prefix(ip.to_canonical(), *first, *bits),
                (DialPlace::Net { .. }, Err(_)) => true,
            }
    }

    /// Whether it allows to dial this address of a host that was ordered by this name.
    pub(super) fn allows(&self, host: &str, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.port == address.port()
            && match &self.place {
                // A name says nothing about hosts that are not on the public network: whoever
                // answers for it could name any of them.
                DialPlace::Name(name) => name.eq_ignore_ascii_case(bare(host)) && is_public(ip),
                DialPlace::Net { first, bits } => has_prefix(ip, *first, *bits),
            }
    }
}

impl fmt::Display for DialRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            DialPlace::Name(name) => write!(f, "{name}:{}", self.port),
            DialPlace::Net { first: IpAddr::V4(first), bits } => write!(f, "{first}/{bits}:{}", self.port),
            DialPlace::Net { first: IpAddr::V6(first), bits } => write!(f, "[{first}]/{bits}:{}", self.port),
        }
    }
}

fn net(first: IpAddr, bits: Option<u8>) -> Result<DialPlace, DialRuleError> {
    // An address that maps IPv4 would never match what it is compared with.
    let is_mapped = first.to_canonical() != first;
    let most = if first.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    if is_mapped || bits > most {
        return Err(DialRuleError::Form);
    }
    let (value, _) = value(first);
    if bits < most && value << bits << (128 - most) != 0 {
        return Err(DialRuleError::HostBits);
    }
    Ok(DialPlace::Net { first, bits })
}

/// The address as a number, and its length in bits.
fn value(ip: IpAddr) -> (u128, u8) {
    match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    }
}

fn has_prefix(ip: IpAddr, first: IpAddr, bits: u8) -> bool {
    let ((ip, length), (first, other)) = (value(ip), value(first));
    length == other && (bits == 0 || (ip ^ first) >> (length - bits) == 0)
}

/// Whether it reads as a host name, which is no part of an address.
fn is_name(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.len() <= 63 && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let host = bare(host);
    host.len() <= 253 && host.split('.').all(is_label) && host.bytes().any(|b| b.is_ascii_alphabetic())
}

/// A name without the dot that says that it is whole.
fn bare(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Whether an address is that of no private network, nor of this host alone, nor one by which a
/// gateway or a tunnel would reach such. Public addresses that this host has are public.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [first, second, third, _] = ip.octets();
            let is_shared = first == 100 && second & 0xc0 == 64;
            let is_of_tests = first == 198 && second & 0xfe == 18;
            // Anycast of protocols and of 6to4: gateways of the nearest network.
            let is_of_protocols = [[192, 0, 0], [192, 88, 99]].contains(&[first, second, third]);
            // The last sixteenth is reserved, with the broadcast address.
            let is_reserved = is_of_tests || is_of_protocols || first >= 240;
            let is_of_here = first == 0 || ip.is_loopback() || ip.is_link_local() || ip.is_private();
            !is_of_here && !is_shared && !is_reserved && !ip.is_multicast()
        }
        // A gateway makes an IPv4 address of it.
        IpAddr::V6(ip) if ip.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
            let [.., high, low] = ip.segments();
            is_public(IpAddr::from(((u32::from(high) << 16) | u32::from(low)).to_be_bytes()))
        }
        IpAddr::V6(ip) => {
            let [first, second, _, _, marked, marker, ..] = ip.segments();
            // The first 256th of all has the loopback address, and forms with an IPv4 address in
            // them (::a.b.c.d, 64:ff9b:1::/48). So have 6to4 (2002::/16) and Teredo (2001::/32).
            // ISATAP has one behind any prefix.
            let is_tunnel = marker == 0x5efe && matches!(marked, 0 | 0x200);
            let has_ipv4 = first < 0x100 || first == 0x2002 || (first, second) == (0x2001, 0) || is_tunnel;
            let is_of_site = first & 0xffc0 == 0xfec0;
            let is_of_here = ip.is_unicast_link_local() || ip.is_unique_local() || is_of_site;
            !has_ipv4 && !is_of_here && !ip.is_multicast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(rule: &str, host: &str, address: &str) -> bool {
        let rule = DialRule::parse(rule, 7214).unwrap_or_else(|error| panic!("{rule}: {error}"));
        assert_eq!(DialRule::parse(&rule.to_string(), 1), Ok(rule.clone()), "it is read back");
        rule.allows(host, address.parse().unwrap_or_else(|_| panic!("{address}")))
    }

    #[test]
    fn a_rule_allows_its_hosts_at_its_port_and_nothing_else() {
        for (rule, host, address, want) in [
            ("dtn.example.org", "dtn.example.org", "192.0.2.1:7214", true),
            ("dtn.example.org", "DTN.example.org", "192.0.2.1:7214", true),
            ("dtn.example.org", "dtn.example.org", "192.0.2.1:7215", false),
            ("dtn.example.org", "dtn.example.org.", "192.0.2.1:7214", true),
            ("dtn.example.org.", "dtn.example.org", "192.0.2.1:7214", true),
            ("dtn.example.org", "dtn.example.org..", "192.0.2.1:7214", false),
            ("dtn.example.org:99", "dtn.example.org", "[2001:db8::1]:99", true),
            ("dtn.example.org", "evil.example.org", "192.0.2.1:7214", false),
            ("dtn.example.org", "a.dtn.example.org", "192.0.2.1:7214", false),
            ("192.0.2.0/24", "any.example", "192.0.2.255:7214", true),
            ("192.0.2.0/24", "any.example", "192.0.3.0:7214", false),
            ("192.0.2.7", "any.example", "192.0.2.7:7214", true),
            ("192.0.2.7:8000", "192.0.2.7", "192.0.2.7:8000", true),
            ("192.0.2.7", "any.example", "192.0.2.6:7214", false),
            ("192.0.2.0/24", "any.example", "[::ffff:192.0.2.9]:7214", true),
            ("127.0.0.0/8:1234", "localhost", "127.0.0.1:1234", true),
            ("0.0.0.0/0", "any.example", "203.0.113.9:7214", true),
            ("0.0.0.0/0", "any.example", "[2001:db8::1]:7214", false),
            ("2001:db8::/32", "any.example", "[2001:db8:9::1]:7214", true),
            ("[2001:db8::]/32:80", "any.example", "[2001:db8:9::1]:80", true),
            ("[2001:db8::1]:80", "any.example", "[2001:db8::1]:80", true),
            ("2001:db8::1", "any.example", "[2001:db8::2]:7214", false),
            ("::/0", "any.example", "192.0.2.1:7214", false),
        ] {
            assert_eq!(allows(rule, host, address), want, "{rule}: {host} at {address}");
        }
    }

    #[test]
    fn a_name_leads_to_no_address_of_this_host_or_of_a_private_network() {
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "[::1]",
            "[::]",
            "[fe80::1]",
            "[fc00::1]",
            "[fd12::1]",
            "[ff02::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:10.0.0.1]",
            "[64:ff9b::10.0.0.1]",
            "[64:ff9b:1::192.0.2.1]",
            "[2002:a00:1::1]",
            "[2001::1]",
            "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
            "[fec0::1]",
            "[feff::1]",
            "[::10.0.0.1]",
            "[::192.0.2.1]",
            "198.18.0.1",
            "198.19.255.255",
            "240.0.0.1",
            "254.1.1.1",
            "192.0.0.8",
            "192.88.99.1",
            "[2606:4700::5efe:10.0.0.1]",
            "[2606:4700::200:5efe:192.0.2.1]",
        ] {
            assert!(!allows("dtn.example.org", "dtn.example.org", &format!("{address}:7214")), "{address}");
        }
    }

    #[test]
    fn a_name_leads_to_public_neighbours_of_reserved_networks() {
        for address in [
            "198.17.255.255",
            "198.20.0.1",
            "100.63.0.1",
            "192.0.1.1",
            "192.88.98.1",
            "[2606:4700::100:5efe:192.0.2.1]",
            "[2001:1::1]",
            "[2001:db8::1]",
            "[2003::1]",
            "[2606:4700::1]",
            "[64:ff9b::192.0.2.1]",
        ] {
            assert!(allows("dtn.example.org", "dtn.example.org", &format!("{address}:7214")), "{address}");
        }
    }

    #[test]
    fn a_host_that_no_rule_can_allow_is_known_before_it_is_looked_up() {
        for (rule, host, port, want) in [
            ("dtn.example.org", "DTN.example.org.", 7214, true),
            ("dtn.example.org", "dtn.example.org", 7215, false),
            ("dtn.example.org", "evil.example.org", 7214, false),
            ("dtn.example.org", "192.0.2.1", 7214, false),
            ("192.0.2.0/24", "any.example", 7214, true),
            ("192.0.2.0/24", "any.example", 80, false),
            ("192.0.2.0/24", "192.0.2.9", 7214, true),
            ("192.0.2.0/24", "::ffff:192.0.2.9", 7214, true),
            ("192.0.2.0/24", "127.0.0.1", 7214, false),
            ("::/0", "127.0.0.1", 7214, false),
        ] {
            let parsed = DialRule::parse(rule, 7214).unwrap_or_else(|error| panic!("{rule}: {error}"));
            assert_eq!(parsed.may_allow(host, port), want, "{rule}: {host} at {port}");
        }
    }

    #[test]
    fn other_texts_are_no_rules() {
        for text in [
            "",
            ":7214",
            "host:",
            "host:0",
            "host:70000",
            "host/24",
            "192.0.2.0/33",
            "2001:db8::/129",
            "192.0.2.0/",
            "192.0.2.0/x",
            "[192.0.2.1",
            "[host]:80",
            "a b",
            "lh://host",
            "*",
            "1.2.3",
            "999.1.1.1",
            "a..b",
            "-1/0",
            "::ffff:192.0.2.1",
            "[::1]x",
            "192.0.2.0/24:0",
        ] {
            assert_eq!(DialRule::parse(text, 7214), Err(DialRuleError::Form), "{text}");
        }
        for text in ["192.0.2.7/24", "2001:db8::1/32", "0.0.0.1/0", "11.0.0.0/7:1"] {
            assert_eq!(DialRule::parse(text, 7214), Err(DialRuleError::HostBits), "{text}");
        }
    }
}
