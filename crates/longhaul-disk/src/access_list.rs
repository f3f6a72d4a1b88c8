//! Access lists as the kernel keeps them: the attributes `system.posix_acl_access` and
//! `system.posix_acl_default`.
//!
//! In: the bytes of an attribute, or a list that travelled. Out: the other. A list is checked
//! before the kernel sees it. It asks no file and no database.
//!
//! The form: version 2 (u32), then for each entry a tag (u16), permissions (u16) and the number of
//! an account (u32), all little endian, in the order of their tags.

use longhaul_core::{AccessList, Account, Grant, Grantee, Permissions};

/// The beginning of the names of access lists.
pub(crate) const NAMES: &[u8] = b"system.posix_acl_";
/// The name of the list that holds for a file or directory itself.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The name of the list that new entries of a directory get.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Reads a list; `named` adds the names of accounts. `None`: it has another form.
pub(crate) fn parse(bytes: &[u8], mut named: impl FnMut(Grantee) -> Grantee) -> Option<AccessList> {
    let (version, entries) = bytes.split_first_chunk()?;
    let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
        return None;
    }
    let grant = |entry: &[u8; ENTRY_BYTES]| {
        let [tag0, tag1, may0, may1, id @ ..] = *entry;
        let account = Account::of_id(u32::from_le_bytes(id));
        let to = match u16::from_le_bytes([tag0, tag1]) {
            TAG_OWNER => Grantee::Owner,
            TAG_USER => Grantee::User(account),
            TAG_GROUP => Grantee::Group,
            TAG_OTHER_GROUP => Grantee::OtherGroup(account),
            TAG_MASK => Grantee::Mask,
            TAG_OTHERS => Grantee::Others,
            _ => return None,
        };
        let may = Permissions::try_from(u8::try_from(u16::from_le_bytes([may0, may1])).ok()?).ok()?;
        Some(Grant { to: named(to), may })
    };
    Some(AccessList { grants: entries.iter().map(grant).collect::<Option<_>>()? })
}

/// The reason why a list cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoList {
    /// It is none that the kernel would take.
    Invalid,
    /// It names an account that is unknown here.
    UnknownAccount,
}

/// Writes a list. `number` gives the number of an account, and `most` the bits of a mode that the
/// list may not exceed: those of the owner, of the group (which bound the mask) and of others.
pub(crate) fn write(list: &AccessList, number: impl Fn(&Grantee) -> Option<u32>, most: u32) -> Result<Vec<u8>, NoList> {
    let mut entries = Vec::with_capacity(list.grants.len());
    let has_mask = list.grants.iter().any(|grant| grant.to == Grantee::Mask);
    for Grant { to, may } in &list.grants {
        let (tag, class) = match to {
            Grantee::Owner => (TAG_OWNER, most >> 6),
            Grantee::User(_) => (TAG_USER, 7),
            Grantee::Group => (TAG_GROUP, if has_mask { 7 } else { most >> 3 }),
            Grantee::OtherGroup(_) => (TAG_OTHER_GROUP, 7),
            Grantee::Mask => (TAG_MASK, most >> 3),
            Grantee::Others => (TAG_OTHERS, most),
        };
        let id = match to.account() {
            None => NO_ID,
            Some(_) => number(to).ok_or(NoList::UnknownAccount)?,
        };
        entries.push((tag, id, u16::from(may.bits()) & (class & 7) as u16));
    }
    // Numbers here may have another order than those at the source.
    entries.sort_unstable();
    let count = |wanted| entries.iter().filter(|(tag, ..)| *tag == wanted).count();
    let needs_mask = count(TAG_USER) + count(TAG_OTHER_GROUP) > 0;
    let is_valid = [TAG_OWNER, TAG_GROUP, TAG_OTHERS].iter().all(|tag| count(*tag) == 1)
        && (count(TAG_MASK) == 1 || (count(TAG_MASK) == 0 && !needs_mask))
        && entries.windows(2).all(|pair| (pair[0].0, pair[0].1) != (pair[1].0, pair[1].1));
    if !is_valid {
        return Err(NoList::Invalid);
    }
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, id, may) in entries {
        bytes.extend(tag.to_le_bytes().into_iter().chain(may.to_le_bytes()).chain(id.to_le_bytes()));
    }
    Ok(bytes)
}

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
const TAG_OWNER: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP: u16 = 0x04;
const TAG_OTHER_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHERS: u16 = 0x20;
/// The number of entries that name no account.
const NO_ID: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn list(grants: &[(Grantee, u8)]) -> AccessList {
        let grant = |(to, bits): &(Grantee, u8)| Grant {
            to: to.clone(),
            may: Permissions::try_from(*bits).expect("permissions"),
        };
        AccessList { grants: grants.iter().map(grant).collect() }
    }

    fn user(id: u32) -> Grantee {
        Grantee::User(Account::of_id(id))
    }

    fn full() -> AccessList {
        list(&[
            (Grantee::Owner, 7),
            (user(5), 6),
            (user(9), 7),
            (Grantee::Group, 5),
            (Grantee::OtherGroup(Account::of_id(3)), 4),
            (Grantee::Mask, 7),
            (Grantee::Others, 1),
        ])
    }

    fn own(to: &Grantee) -> Option<u32> {
        to.account().and_then(|account| account.id)
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let bytes = write(&full(), own, 0o777).expect("a list");
        assert_eq!(bytes.len(), 4 + 7 * 8);
        assert_eq!(&bytes[..12], [2, 0, 0, 0, 1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(parse(&bytes, |to| to), Some(full()));
    }

    #[test]
    fn what_a_mode_leaves_out_a_list_does_not_grant() {
        let bytes = write(&full(), own, 0o750).expect("a list");
        let read = parse(&bytes, |to| to).expect("a list");
        let may = |to: &Grantee| read.grants.iter().find(|grant| grant.to == *to).expect("it stands").may.bits();
        let parties = [Grantee::Owner, user(9), Grantee::Group, Grantee::Mask, Grantee::Others];
        assert_eq!(parties.each_ref().map(may), [7, 7, 5, 5, 0], "the mask bounds all but the owner and others");
        let short = list(&[(Grantee::Owner, 7), (Grantee::Group, 7), (Grantee::Others, 7)]);
        let bytes = write(&short, own, 0o640).expect("a list");
        let bits: Vec<_> = parse(&bytes, |to| to).expect("a list").grants.iter().map(|g| g.may.bits()).collect();
        assert_eq!(bits, [6, 4, 0]);
    }

    #[test]
    fn lists_that_the_kernel_would_not_take_and_unknown_accounts_are_told_apart() {
        let without = |gone: Grantee| {
            let grants = full().grants.into_iter().filter(|grant| grant.to != gone).collect();
            AccessList { grants }
        };
        for gone in [Grantee::Owner, Grantee::Group, Grantee::Others, Grantee::Mask] {
            assert_eq!(write(&without(gone.clone()), own, 0o777), Err(NoList::Invalid), "{gone:?}");
        }
        let twice = |_: &Grantee| Some(5);
        assert_eq!(write(&full(), twice, 0o777), Err(NoList::Invalid), "two users become one");
        assert_eq!(write(&full(), |_| None, 0o777), Err(NoList::UnknownAccount));
        for bad in [&b""[..], &[2, 0, 0], &[1, 0, 0, 0], &[2, 0, 0, 0, 1], &[2, 0, 0, 0, 3, 0, 7, 0, 0, 0, 0, 0]] {
            assert_eq!(parse(bad, |to| to), None, "{bad:?}");
        }
    }
}
