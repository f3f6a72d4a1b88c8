//! Families of campaigns: one `job add` for several destinations, or for sources at several hosts,
//! makes a campaign for each, and the family's name stands for all of them.
//!
//! In: texts that users type for a campaign, and rows. Out: the campaigns that a text stands for. A
//! family has no row of its own: it is told by the names of its members, `NAME/1`, `NAME/2` and so
//! on, by their keys and by their owner. Must not know the command line, nor the transfers.

use std::collections::BTreeSet;

use longhaul_core::{Blame, Fault, FaultCode, PlainText};
use longhaul_jobs::{Campaign, CampaignId, CampaignKey, JobsError, Rows};

/// The name of a member of a family, by its number from 1 on.
pub fn member_name(family: &str, number: usize) -> String {
    format!("{family}/{number}")
}

/// The family that a campaign of this name is a member of. `None`: of none.
pub fn family_of(name: &str) -> Option<&str> {
    let (family, number) = name.rsplit_once('/')?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
    (is_number && !number.is_empty() && !family.is_empty()).then_some(family)
}

/// The members of the family of this name, in the order of their numbers. Empty if there is no such
/// family.
///
/// Names alone make none: its members are what one `job add` made, two or more that are numbered
/// from 1 on without a gap, have keys of one family, and the same owner. Whatever else has such a
/// name is a campaign by itself. Rows that make no sense are passed over.
///
/// # Errors
/// Those of the store.
pub fn members(rows: &mut dyn Rows, family: &str) -> Result<Vec<Campaign>, JobsError> {
    let all = readable(rows)?;
    members_among(rows, &all, family)
}

fn members_among(rows: &mut dyn Rows, all: &[Campaign], family: &str) -> Result<Vec<Campaign>, JobsError> {
    let mut found: Vec<Campaign> = Vec::new();
    if is_number(family) {
        return Ok(found);
    }
    let mut owner = None;
    for number in 1.. {
        let name = member_name(family, number);
        let Some(next) = all.iter().find(|campaign| campaign.name == name) else { break };
        let signer = signer(rows, next.id)?;
        match found.last() {
            None => owner = signer,
            Some(last) if tag_of(&last.key) == tag_of(&next.key) && signer == owner => {}
            Some(_) => break,
        }
        found.push(next.clone());
    }
    if found.len() < 2 {
        found.clear();
    }
    Ok(found)
}

/// The key of a member of a family: bytes that all of its members have, and random ones of its own.
pub fn member_key(family: [u8; FAMILY_BYTES], own: [u8; FAMILY_BYTES]) -> CampaignKey {
    let mut key = [0; 2 * FAMILY_BYTES];
    key[..FAMILY_BYTES].copy_from_slice(&family);
    key[FAMILY_BYTES..].copy_from_slice(&own);
    CampaignKey(key)
}

/// The bytes of a campaign's key that all members of its family have.
fn tag_of(key: &CampaignKey) -> &[u8] {
    &key.0[..FAMILY_BYTES]
}

/// The bytes of a key that are those of a family; as many are the member's own.
pub const FAMILY_BYTES: usize = 8;

/// The key of whoever is said to have signed a campaign. `None`: nobody, or its row makes no sense.
fn signer(rows: &mut dyn Rows, id: CampaignId) -> Result<Option<[u8; 32]>, JobsError> {
    match rows.signature(id) {
        Err(error) if error.is_of_rows() => Ok(None),
        kept => Ok(kept?.map(|signature| signature.owner)),
    }
}

/// All campaigns whose rows make sense.
fn readable(rows: &mut dyn Rows) -> Result<Vec<Campaign>, JobsError> {
    match rows.campaigns() {
        Err(error) if error.is_of_rows() => {}
        all => return all,
    }
    let mut found = Vec::new();
    for id in rows.campaign_ids()? {
        match rows.campaign(id) {
            Err(error) if error.is_of_rows() => {}
            campaign => found.extend(campaign?),
        }
    }
    Ok(found)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The campaigns of a name among these: the one that has it, and the members of the family that has
/// it.
fn of_name(rows: &mut dyn Rows, all: &[Campaign], name: &str) -> Result<Vec<Campaign>, JobsError> {
    let mut found: Vec<Campaign> = all.iter().filter(|campaign| campaign.name == name).cloned().collect();
    found.extend(members_among(rows, all, name)?);
    Ok(found)
}

/// The numbers of all campaigns that have one of these names, or whose family has it. Rows that
/// make no sense are passed over.
///
/// # Errors
/// Those of the store.
pub fn ids_named(rows: &mut dyn Rows, names: &[String]) -> Result<BTreeSet<CampaignId>, JobsError> {
    let mut ids = BTreeSet::new();
    if names.is_empty() {
        return Ok(ids);
    }
    let all = readable(rows)?;
    for name in names {
        ids.extend(of_name(rows, &all, name)?.iter().map(|campaign| campaign.id));
    }
    Ok(ids)
}

/// The campaigns that a text stands for: the one of this name, or the members of the family of this
/// name, else the one of this number. Empty if there is none; a fault if both a campaign and a
/// family have the name.
///
/// # Errors
/// Those of the store.
pub fn campaigns_named(rows: &mut dyn Rows, text: &str) -> Result<Result<Vec<Campaign>, Fault>, JobsError> {
    let all = rows.campaigns()?;
    let found = of_name(rows, &all, text)?;
    if let ([one, _, ..], Some(last)) = (found.as_slice(), found.last())
        && one.name == text
    {
        let (shown, last) = (PlainText::from(text), PlainText::from(last.name.as_str()));
        let message = format_args!(
            "'{shown}' is the name of the campaign {} and of a family of campaigns up to '{last}'",
            one.id.0
        );
        let fault = Fault::new(FaultCode::Usage, Blame::Local, message);
        return Ok(Err(fault.hint_in_words("name the campaign by its number, or each of the family by its own name")));
    }
    match text.parse() {
        Ok(number) if found.is_empty() => Ok(Ok(rows.campaign(CampaignId(number))?.into_iter().collect())),
        _ => Ok(Ok(found)),
    }
}

/// Refuses a name that a user wishes for a family of `count` campaigns, if it reads as a campaign's
/// number. Any name may be that of one campaign.
///
/// # Errors
/// A usage fault.
pub fn refuse_number(name: &str, count: usize) -> Result<(), Fault> {
    if count < 2 || !is_number(name) {
        return Ok(());
    }
    let shown = PlainText::from(name);
    let message = format_args!("'{shown}' reads as the number of a campaign, and cannot be the name of a family");
    let fault = Fault::new(FaultCode::Usage, Blame::Local, message);
    Err(fault.hint_in_words("give a name with --name that has more than digits"))
}

/// The fault of a name that is wished for a campaign or a family of `count` campaigns, if it is
/// that of a family already, if it reads as that of a member of one, or if the new family would
/// have the name of a campaign. Two campaigns of one name are refused by the queue itself.
///
/// # Errors
/// Those of the store.
pub fn name_clash(rows: &mut dyn Rows, name: &str, count: usize) -> Result<Option<Fault>, JobsError> {
    let all = rows.campaigns()?;
    let members = members_among(rows, &all, name)?;
    let shown = PlainText::from(name);
    let family = match family_of(name) {
        Some(family) if !members_among(rows, &all, family)?.is_empty() => Some(PlainText::from(family)),
        _ => None,
    };
    let message = match (members.first(), members.last(), family) {
        (Some(first), Some(last), _) => {
            let (first, last) = (PlainText::from(first.name.as_str()), PlainText::from(last.name.as_str()));
            format!("there is a family of campaigns named '{shown}' already, from '{first}' to '{last}'")
        }
        _ if count > 1 && all.iter().any(|campaign| campaign.name == name) => {
            format!("there is a campaign named '{shown}' already, so that no family of campaigns can have the name")
        }
        (_, _, Some(family)) => {
            format!("'{shown}' is the name of a campaign in the family '{family}', which 'job add' makes")
        }
        _ => return Ok(None),
    };
    let fault = Fault::new(FaultCode::Usage, Blame::Local, message);
    Ok(Some(fault.hint_in_words("nothing was added: give another name with --name")))
}

#[cfg(test)]
mod tests {
    use longhaul_jobs::queue::{NewCampaign, add_campaign};
    use longhaul_jobs::{CampaignSignature, Memory, Micros, Store};

    use super::*;

    #[test]
    fn a_family_is_told_by_a_slash_and_a_number_at_the_end_of_its_members_names() {
        for (name, family) in [
            ("atlas/1", Some("atlas")),
            ("atlas/12", Some("atlas")),
            ("cms/atlas/3", Some("cms/atlas")),
            ("atlas", None),
            ("atlas/", None),
            ("atlas/0", None),
            ("atlas/01", None),
            ("atlas/raw", None),
            ("atlas/1a", None),
            ("/1", None),
            ("7", None),
        ] {
            assert_eq!(family_of(name), family, "{name}");
        }
        assert_eq!(family_of(&member_name("a/b", 7)), Some("a/b"));
        assert!(refuse_number("12", 2).is_err() && refuse_number("12", 1).is_ok() && refuse_number("a12", 2).is_ok());
    }

    /// A queue with campaigns of these names, in this order, each of the family of this tag.
    fn queue(names: &[(&str, u8)]) -> Memory {
        let mut store = Memory::at(Micros(1_000_000));
        for (own, (name, tag)) in (1..).zip(names) {
            let key = member_key([*tag; FAMILY_BYTES], [own; FAMILY_BYTES]);
            let new = NewCampaign { key, name: (*name).to_owned(), ..NewCampaign::default() };
            store.transact(|rows| add_campaign(rows, &new)).unwrap();
        }
        store
    }

    fn sign(store: &mut Memory, name: &str, owner: [u8; 32]) {
        store
            .transact(|rows| {
                let campaign = rows.campaigns()?.into_iter().find(|campaign| campaign.name == name).unwrap().id;
                rows.put_signature(&CampaignSignature { campaign, owner, at: Micros(1), spec: [0; 64], manifest: None })
            })
            .unwrap();
    }

    fn found(store: &mut Memory, text: &str) -> Result<Vec<String>, Fault> {
        let found = store.transact(|rows| campaigns_named(rows, text)).unwrap()?;
        Ok(found.into_iter().map(|campaign| campaign.name).collect())
    }

    #[test]
    fn a_text_is_a_campaigns_name_or_a_familys_or_a_number_and_never_two_of_them() {
        let mut store = queue(&[("a/1", 1), ("a/2", 1), ("3/1", 2), ("3/2", 2), ("b/1", 3), ("b/2", 3), ("b", 4)]);
        let mut named = |text: &str| found(&mut store, text);
        assert_eq!(named("a").unwrap(), ["a/1", "a/2"]);
        assert_eq!(named("a/2").unwrap(), ["a/2"]);
        assert_eq!(named("3").unwrap(), ["3/1"], "the campaign of this number, and no family");
        assert!(named("c").unwrap().is_empty() && named("99").unwrap().is_empty());
        // An older program has let it come about.
        let refused = named("b").unwrap_err();
        assert!(refused.code == FaultCode::Usage && refused.message.contains("the campaign 7 and"), "{refused:?}");
        assert_eq!(named("7").unwrap(), ["b"]);
        let names = ["b", "a/2", "7"].map(str::to_owned);
        let ids = store.transact(|rows| ids_named(rows, &names)).unwrap();
        assert_eq!(ids.into_iter().map(|id| id.0).collect::<Vec<_>>(), [2, 5, 6, 7], "a mover takes names alone");
    }

    #[test]
    fn only_what_one_command_has_added_is_a_family() {
        let mut store = queue(&[
            ("cms/2025", 1),
            ("cms/2026", 2),
            ("run/1", 3),
            ("run/2", 4),
            ("o/1", 5),
            ("y/1", 6),
            ("x", 7),
            ("y/2", 6),
            ("y/3", 8),
        ]);
        for text in ["cms", "run", "o"] {
            assert!(found(&mut store, text).unwrap().is_empty(), "{text}");
        }
        assert_eq!(found(&mut store, "y").unwrap(), ["y/1", "y/2"], "the third was added by itself");
        sign(&mut store, "y/2", [7; 32]);
        assert!(found(&mut store, "y").unwrap().is_empty(), "another owner's");
        sign(&mut store, "y/1", [7; 32]);
        assert_eq!(found(&mut store, "y").unwrap(), ["y/1", "y/2"]);
    }

    #[test]
    fn neither_a_family_nor_a_campaign_hides_the_other_one() {
        let mut store = queue(&[("a/1", 1), ("a/2", 1), ("b", 2)]);
        let mut clash = |name: &str, count| store.transact(|rows| name_clash(rows, name, count)).unwrap();
        for count in [1, 2] {
            let fault = clash("a", count).unwrap();
            assert!(fault.message.contains("from 'a/1' to 'a/2'"), "{fault:?}");
        }
        assert!(clash("b", 2).unwrap().message.contains("a campaign named 'b'"));
        assert_eq!(clash("b", 1), None, "the queue refuses it");
        assert_eq!(clash("c", 2), None);
        assert!(clash("a/3", 1).unwrap().message.contains("in the family 'a'"));
        assert_eq!(clash("b/2026", 1), None);
    }
}
