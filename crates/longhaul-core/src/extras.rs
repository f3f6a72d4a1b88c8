//! The extras of an entry: its metadata beyond mode and times, which travels only where a transfer
//! asks for it.
//!
//! In: what a scan reads, or what a peer says. Out: [`Extras`] in which every name and number was
//! checked, and their cost, by which both sides bound them. Knows no file system: which extras are
//! set, and in which order, is the matter of `longhaul-disk`.

use serde::{Deserialize, Serialize};

use crate::limits::NAME_BYTES_MAX;
use crate::text::Word;

/// The extras of an entry. Those that the transfer does not carry are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    /// Its owner and group. `None`: they are not carried.
    pub owner: Option<Owner>,
    /// Its access list. `None`: it has none beyond its mode.
    pub access: Option<AccessList>,
    /// The access list that new entries of this directory get. `None`: it has none.
    pub default: Option<AccessList>,
    /// Its extended attributes, in no order.
    pub xattrs: Vec<Xattr>,
    /// Whether some of it could not be read at the source: then what the destination has and this
    /// does not name is left there.
    pub incomplete: bool,
}

impl Extras {
    /// Whether there is nothing to carry.
    pub fn is_empty(&self) -> bool {
        *self == Extras::default()
    }

    /// Its cost: bytes that it takes here, never fewer than on the wire.
    pub fn cost(&self) -> usize {
        let owner = self.owner.iter().map(|owner| owner.user.cost() + owner.group.cost()).sum::<usize>();
        let lists = [&self.access, &self.default].into_iter().flatten().map(AccessList::cost).sum::<usize>();
        EXTRAS_COST + owner + lists + self.xattrs.iter().map(Xattr::cost).sum::<usize>()
    }
}

/// The owner and the group of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The user.
    pub user: Account,
    /// The group.
    pub group: Account,
}

/// A user or a group, by its name, its number or both. The name is looked up first where it comes
/// to; a name that is unknown there leaves the number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "AccountRead")]
pub struct Account {
    /// Its number. `None`: only its name is known.
    pub id: Option<u32>,
    /// Its name. `None`: it has none, or names are not carried.
    pub name: Option<Word>,
}

/// An account as it is read, before it is checked.
#[derive(Deserialize)]
struct AccountRead {
    id: Option<u32>,
    name: Option<Word>,
}

impl TryFrom<AccountRead> for Account {
    type Error = ExtrasError;
    fn try_from(AccountRead { id, name }: AccountRead) -> Result<Account, ExtrasError> {
        let has_name = name.as_ref().is_some_and(|name| !name.is_empty());
        if id == Some(NO_ID) || (id.is_none() && !has_name) {
            return Err(ExtrasError::NoAccount);
        }
        Ok(Account { id, name: name.filter(|_| has_name) })
    }
}

impl Account {
    /// An account without a name.
    pub fn of_id(id: u32) -> Account {
        Account { id: Some(id), name: None }
    }

    /// Whether it names the same account as `other`: by its name, if it has one, or by its number.
    pub fn is_of(&self, other: &Account) -> bool {
        if self.name.is_some() { self.name == other.name } else { self.id == other.id }
    }

    fn cost(&self) -> usize {
        ITEM_COST + self.name.as_ref().map_or(0, |name| name.len())
    }
}

/// An access list, as POSIX.1e drafted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessList {
    /// Its entries, in the order of [`Grantee`].
    pub grants: Vec<Grant>,
}

impl AccessList {
    fn cost(&self) -> usize {
        self.grants.iter().map(|grant| ITEM_COST + grant.to.account().map_or(0, Account::cost)).sum()
    }
}

/// The permissions of one party in an access list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The party.
    pub to: Grantee,
    /// Its permissions.
    pub may: Permissions,
}

/// The party of an entry of an access list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grantee {
    /// The owner.
    Owner,
    /// Another user.
    User(Account),
    /// The group.
    Group,
    /// Another group.
    OtherGroup(Account),
    /// The most that anybody but the owner and the rest of the world may do.
    Mask,
    /// The rest of the world.
    Others,
}

impl Grantee {
    /// The account that it names. `None` for parties without one.
    pub fn account(&self) -> Option<&Account> {
        match self {
            Grantee::User(account) | Grantee::OtherGroup(account) => Some(account),
            _ => None,
        }
    }
}

/// Permissions to read (4), write (2) and execute (1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8")]
pub struct Permissions(u8);

impl Permissions {
    /// The bits.
    pub fn bits(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Permissions {
    type Error = ExtrasError;
    fn try_from(bits: u8) -> Result<Permissions, ExtrasError> {
        if bits <= 7 { Ok(Permissions(bits)) } else { Err(ExtrasError::NoPermissions) }
    }
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// Its name.
    pub name: XattrName,
    /// Its value.
    pub value: Vec<u8>,
}

impl Xattr {
    /// Its cost: bytes that it takes here.
    pub fn cost(&self) -> usize {
        ITEM_COST + self.name.as_bytes().len() + self.value.len()
    }
}

/// The name of an extended attribute that may travel: one of the namespace `user.`, which no system
/// gives a meaning. Any other name does not parse.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>")]
pub struct XattrName(Vec<u8>);

impl XattrName {
    /// The whole name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<Vec<u8>> for XattrName {
    type Error = ExtrasError;
    fn try_from(name: Vec<u8>) -> Result<XattrName, ExtrasError> {
        let may_travel = name.strip_prefix(XATTR_USER).is_some_and(|rest| !rest.is_empty() && !rest.contains(&0));
        if may_travel && name.len() <= NAME_BYTES_MAX { Ok(XattrName(name)) } else { Err(ExtrasError::NoName) }
    }
}

/// The reason why something is no part of [`Extras`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtrasError {
    /// A name of another namespace than `user.`, or of no possible length.
    #[error("no name of an extended attribute that may travel")]
    NoName,
    /// Neither a number nor a name, or the number that stands for none.
    #[error("neither the number nor the name of an account")]
    NoAccount,
    /// Bits beyond read, write and execute.
    #[error("no permissions of an access list")]
    NoPermissions,
}

/// The namespace of the extended attributes that travel.
pub const XATTR_USER: &[u8] = b"user.";
/// The number that stands for no account: a system takes it for "leave as it is".
const NO_ID: u32 = u32::MAX;
/// The cost of holding extras at all: the id of their entry and the heads of their lists.
const EXTRAS_COST: usize = 32;
/// The cost of holding an attribute, an account or a grant beside its bytes.
const ITEM_COST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_no_system_gives_a_meaning_may_travel() {
        for good in ["user.a", "user.\u{e9}", &format!("user.{}", "x".repeat(250))] {
            assert!(XattrName::try_from(good.as_bytes().to_vec()).is_ok(), "{good}");
        }
        let bad = ["", "user.", "user", "security.capability", "trusted.a", "system.posix_acl_access", "user.a\0b"];
        for bad in bad.map(str::to_owned).into_iter().chain([format!("user.{}", "x".repeat(251))]) {
            assert_eq!(XattrName::try_from(bad.clone().into_bytes()), Err(ExtrasError::NoName), "{bad:?}");
        }
    }

    #[test]
    fn an_account_has_a_number_or_a_name_and_never_the_number_of_none() {
        let read = |id, name: Option<&str>| {
            let name = name.map(|name| Word::try_from(name).expect("a word"));
            Account::try_from(AccountRead { id, name })
        };
        assert_eq!(read(Some(7), Some("")), Ok(Account::of_id(7)));
        assert!(read(None, Some("ann")).is_ok() && read(Some(0), None).is_ok());
        for bad in [read(None, None), read(None, Some("")), read(Some(u32::MAX), Some("ann"))] {
            assert_eq!(bad, Err(ExtrasError::NoAccount));
        }
    }

    #[test]
    fn permissions_are_three_bits() {
        assert!((0..=7).all(|bits| Permissions::try_from(bits).map(Permissions::bits) == Ok(bits)));
        assert_eq!(Permissions::try_from(8), Err(ExtrasError::NoPermissions));
    }
}
