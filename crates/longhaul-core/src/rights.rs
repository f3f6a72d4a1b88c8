//! The rights of a client at a root of a daemon.
//!
//! In: the daemon's configuration, or a listing of roots. Out: [`Rights`] to the code that grants
//! or shows them. Knows neither roots nor clients.

use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// A set of granted rights; nothing by default.
///
/// On the wire it is the list of [their names](Rights::names), in that order and each once. A list
/// with any other name does not parse, so that a daemon cannot have other text shown in their
/// place. Rights that are added later are told only to peers whose version knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Whether it may list and get.
    pub read: bool,
    /// Whether it may make new names.
    pub create: bool,
    /// Whether it may replace standing names.
    pub modify: bool,
    /// Whether it may have names moved away that its source has no more.
    pub delete: bool,
}

/// The reason why a list of words names no [`Rights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a right that is not known, or out of its order")]
pub struct RightsError;

impl Rights {
    /// The rights that both sets grant.
    #[must_use]
    pub const fn and(self, other: Rights) -> Rights {
        Rights {
            read: self.read && other.read,
            create: self.create && other.create,
            modify: self.modify && other.modify,
            delete: self.delete && other.delete,
        }
    }

    /// Whether they let a client change what stands in a root.
    pub const fn may_change(self) -> bool {
        self.create || self.modify || self.delete
    }

    /// The names of the rights that are granted, in their order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [(self.read, NAMES[0]), (self.create, NAMES[1]), (self.modify, NAMES[2]), (self.delete, NAMES[3])];
        all.into_iter().filter(|(granted, _)| *granted).map(|(_, name)| name)
    }
}

impl Serialize for Rights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut names = serializer.serialize_seq(Some(self.names().count()))?;
        self.names().try_for_each(|name| names.serialize_element(name))?;
        names.end()
    }
}

impl<'de> Deserialize<'de> for Rights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rights, D::Error> {
        struct RightsVisitor;
        impl<'de> de::Visitor<'de> for RightsVisitor {
            type Value = Rights;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("names of rights")
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut names: A) -> Result<Rights, A::Error> {
                let (mut granted, mut next) = ([false; NAMES.len()], 0);
                while let Some(name) = names.next_element::<&str>()? {
                    let later = NAMES[next..].iter().position(|known| *known == name);
                    let at = next + later.ok_or_else(|| de::Error::custom(RightsError))?;
                    granted[at] = true;
                    next = at + 1;
                }
                let [read, create, modify, delete] = granted;
                Ok(Rights { read, create, modify, delete })
            }
        }
        deserializer.deserialize_seq(RightsVisitor)
    }
}

const NAMES: [&str; 4] = ["read", "create", "modify", "delete"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_their_order() {
        let all = Rights { read: true, create: true, modify: true, delete: true };
        assert!(all.names().eq(NAMES));
        assert!(Rights { create: false, ..all }.names().eq(["read", "modify", "delete"]));
        assert_eq!(Rights::default().names().next(), None);
        assert_eq!(all.and(Rights { read: true, ..Rights::default() }), Rights { read: true, ..Rights::default() });
    }
}
