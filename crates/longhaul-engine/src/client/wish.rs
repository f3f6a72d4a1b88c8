//! Words the request of a transfer to a daemon, cut to messages: the hello, and the parts that
//! follow it.
//!
//! In: sources, rules and names of a pull, or a destination, and the names of a list for it. Out:
//! the far end of a hello, and messages one after the other. It holds the list of names once,
//! however many parts are sent, and knows no connection.

use std::sync::Arc;

use longhaul_core::PathList;
use longhaul_core::filter::Rule;
use longhaul_core::limits::{PAGE_BYTES_MAX, SOURCES_MAX};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Far, FarSource, Follows, RequestPart, Transport};

use super::contents;
use crate::api::RemotePath;
use crate::session::handshake::Units;

/// The far end of a transfer.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// The far end in the hello.
    pub(crate) far: Far,
    /// The units that this side takes, if it receives.
    pub(crate) units: Units,
    /// Sources in the parts that follow.
    sources: Arc<[FarSource]>,
    /// Names in the parts that follow.
    names: Option<Arc<PathList>>,
}

impl From<Far> for Wish {
    fn from(far: Far) -> Wish {
        Wish { far, units: Units::Any, sources: Arc::default(), names: None }
    }
}

impl Wish {
    /// Asks for the sources at these paths, narrowed by rules and names.
    pub(crate) fn pull(paths: &[RemotePath], rules: Vec<Rule>, names: Option<Arc<PathList>>) -> Wish {
        let source = |p: &RemotePath| FarSource { root: p.root.clone(), path: p.path.clone(), contents: contents(p) };
        let mut sources: Vec<FarSource> = paths.iter().map(source).collect();
        let rest = sources.split_off(in_one_part(&sources, HELLO_SOURCES_BYTES));
        let follows = match (&names, rest.is_empty()) {
            (Some(_), _) => Follows::Names,
            (None, true) => Follows::Nothing,
            (None, false) => Follows::Sources,
        };
        let far = Far::Sources { sources, rules, follows };
        Wish { far, units: Units::Any, sources: rest.into(), names }
    }

    /// Asks to send these names alone into a destination, by a grant for their list.
    pub(crate) fn push_listed(to: Far, names: Arc<PathList>) -> Wish {
        Wish { names: Some(names), ..Wish::from(to) }
    }

    /// The same wish of a receiver that takes these units.
    pub(crate) fn of_units(self, units: Units) -> Wish {
        Wish { units, ..self }
    }

    /// Whether lanes over UDP and TCP may stand side by side in a session that begins with this
    /// transport. A stream goes out in order: the chunk whose turn it is must find a buffer,
    /// whatever lanes of the other kind hold. So nothing is tried beside TCP there; but a session
    /// that begins with UDP has lanes over TCP only once those over UDP end, and hold nothing.
    pub(crate) fn may_mix_udp(&self, first: Transport) -> bool {
        self.units == Units::Any || first == Transport::Udp
    }

    /// The messages that follow the hello. The last one is marked as such.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Message> + '_ {
        let (mut sources, names) = (&self.sources[..], self.names.as_deref());
        let of_sources = std::iter::from_fn(move || {
            if sources.is_empty() {
                return None;
            }
            let (part, rest) = sources.split_at(in_one_part(sources, PAGE_BYTES_MAX));
            sources = rest;
            Some(RequestPart { sources: part.to_vec(), ..RequestPart::default() })
        });
        let of_names = names.into_iter().flat_map(|names| names.parts(PAGE_BYTES_MAX));
        let of_names = of_names.map(|part| RequestPart { names: part.to_vec(), ..RequestPart::default() });
        let mut parts = of_sources.chain(of_names).peekable();
        std::iter::from_fn(move || {
            let part = parts.next()?;
            Some(Message::RequestPart(RequestPart { last: parts.peek().is_none(), ..part }))
        })
    }
}

/// The number of these sources that fit into one message: one at least.
fn in_one_part(sources: &[FarSource], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fits = |source: &&FarSource| {
        bytes += source.root.len() + source.path.as_bytes().len() + SOURCE_NUMBERS_BYTES;
        bytes <= bytes_max
    };
    sources.iter().take(SOURCES_MAX).take_while(fits).count().max(1).min(sources.len())
}

/// Bytes of sources in a hello: beside them there is room for as many bytes of rules as ever.
const HELLO_SOURCES_BYTES: usize = 16 << 10;
/// Bytes that a source adds to a message beside those of its names.
const SOURCE_NUMBERS_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use longhaul_core::{RelPath, Word};

    use super::*;

    fn paths(count: usize) -> Vec<RemotePath> {
        let path = |n: usize| RemotePath {
            root: Word::try_from("data").expect("a word"),
            path: RelPath::new(format!("run/file-{n:08}")).expect("a path"),
            slash: false,
        };
        (0..count).map(path).collect()
    }

    fn heard(wish: &Wish) -> (Vec<FarSource>, PathList, Vec<bool>) {
        let Far::Sources { sources, .. } = &wish.far else { panic!("a pull") };
        let (mut sources, mut names, mut lasts) = (sources.clone(), PathList::default(), Vec::new());
        for message in wish.parts() {
            assert!(message.try_encode().is_ok(), "every part fits a message");
            let Message::RequestPart(part) = message else { panic!("a part") };
            assert!(part.sources.len() <= SOURCES_MAX && part.names.len() <= PAGE_BYTES_MAX);
            sources.extend(part.sources);
            names.append(&part.names).expect("in order");
            lasts.push(part.last);
        }
        (sources, names, lasts)
    }

    #[test]
    fn any_number_of_sources_is_told_in_messages_of_a_bounded_length() {
        for (count, follows) in [(1, Follows::Nothing), (400, Follows::Nothing), (20_000, Follows::Sources)] {
            let paths = paths(count);
            let wish = Wish::pull(&paths, Vec::new(), None);
            assert!(matches!(&wish.far, Far::Sources { follows: said, .. } if *said == follows), "{count}");
            let (sources, _, lasts) = heard(&wish);
            assert!(sources.iter().map(|source| &source.path).eq(paths.iter().map(|path| &path.path)), "{count}");
            assert_eq!(lasts.iter().filter(|last| **last).count(), usize::from(follows != Follows::Nothing));
            assert!(lasts.last().copied().unwrap_or(true));
        }
    }

    #[test]
    fn names_are_told_in_parts_and_none_at_all_in_one() {
        for count in [0, 1, 5000] {
            let names: Vec<RelPath> = paths(count).into_iter().map(|path| path.path).collect();
            let names = Arc::new(PathList::new(&names));
            let wish = Wish::pull(&paths(1), Vec::new(), Some(names.clone()));
            let (sources, told, lasts) = heard(&wish);
            assert_eq!((sources.len(), &told), (1, &*names), "{count}");
            assert!(lasts.last() == Some(&true) && lasts.iter().filter(|last| **last).count() == 1);
        }
    }
}
