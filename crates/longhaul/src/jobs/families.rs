//! Families of campaigns: one `job add` for several destinations, or for sources at several hosts,
//! makes a campaign for each, and the family's name stands for all of them.
//!
//! In: texts that users type for a campaign, and rows. Out: the campaigns that a text stands for. A
//! family has no row of its own: it is told by the names of its members, `NAME/1`, `NAME/2` and so
//! on, which users cannot give to a campaign. Must not know the command line, nor the transfers.

use longhaul_core::{Blame, Fault, FaultCode, PlainText};
use longhaul_jobs::{Campaign, CampaignId, JobsError, Rows};

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

/// Whether a text that a user typed stands for the campaign of this name, or for a family that it
/// is a member of.
pub fn stands_for(text: &str, name: &str) -> bool {
    text == name || family_of(name) == Some(text)
}

/// The members of the family of this name, in the order of their numbers in the queue. Empty if
/// there is no such family.
///
/// # Errors
/// Those of the store.
pub fn members(rows: &mut dyn Rows, family: &str) -> Result<Vec<Campaign>, JobsError> {
    let mut found = rows.campaigns()?;
    found.retain(|campaign| family_of(&campaign.name) == Some(family));
    found.sort_by_key(|campaign| campaign.id);
    Ok(found)
}

/// The campaigns that a text stands for: the one of this name, else the members of the family of
/// this name, else the one of this number. Empty if there is none.
///
/// # Errors
/// Those of the store.
pub fn campaigns_named(rows: &mut dyn Rows, text: &str) -> Result<Vec<Campaign>, JobsError> {
    if let Some(found) = rows.campaigns()?.into_iter().find(|campaign| campaign.name == text) {
        return Ok(vec![found]);
    }
    let members = members(rows, text)?;
    match text.parse() {
        Ok(number) if members.is_empty() => Ok(rows.campaign(CampaignId(number))?.into_iter().collect()),
        _ => Ok(members),
    }
}

/// Refuses a name that a user wishes for a campaign or a family, if it would be that of a member of
/// a family.
///
/// # Errors
/// A usage fault.
pub fn refuse_member_name(name: &str) -> Result<(), Fault> {
    let Some(family) = family_of(name) else { return Ok(()) };
    let (name, family) = (PlainText::from(name), PlainText::from(family));
    let message = format_args!("'{name}' is the name of a campaign in the family '{family}', which 'job add' makes");
    let fault = Fault::new(FaultCode::Usage, Blame::Local, message);
    Err(fault.hint_in_words("give a name with --name that does not end in a slash and a number"))
}

/// The fault of a name that is wished for a campaign or a family of `count` campaigns, if it is
/// that of a family already, or if the new family would have the name of a campaign. Two campaigns
/// of one name are refused by the queue itself.
///
/// # Errors
/// Those of the store.
pub fn name_clash(rows: &mut dyn Rows, name: &str, count: usize) -> Result<Option<Fault>, JobsError> {
    let members = members(rows, name)?;
    let shown = PlainText::from(name);
    let message = match (members.first(), members.last()) {
        (Some(first), Some(last)) => {
            let (first, last) = (PlainText::from(first.name.as_str()), PlainText::from(last.name.as_str()));
            format!("there is a family of campaigns named '{shown}' already, from '{first}' to '{last}'")
        }
        _ if count > 1 && rows.campaigns()?.iter().any(|campaign| campaign.name == name) => {
            format!("there is a campaign named '{shown}' already, so that no family of campaigns can have the name")
        }
        _ => return Ok(None),
    };
    let fault = Fault::new(FaultCode::Usage, Blame::Local, message);
    Ok(Some(fault.hint_in_words("nothing was added: give another name with --name")))
}

#[cfg(test)]
mod tests {
    use longhaul_jobs::queue::{NewCampaign, add_campaign};
    use longhaul_jobs::{Memory, Micros, Store};

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
            assert_eq!(refuse_member_name(name).is_err(), family.is_some(), "{name}");
        }
        assert_eq!(family_of(&member_name("a/b", 7)), Some("a/b"));
        assert!(stands_for("a", "a") && stands_for("a", "a/2") && !stands_for("a", "ab/2") && !stands_for("a/2", "a"));
    }

    fn queue(names: &[&str]) -> Memory {
        let mut store = Memory::at(Micros(1_000_000));
        for name in names {
            let new = NewCampaign { name: (*name).to_owned(), ..NewCampaign::default() };
            store.transact(|rows| add_campaign(rows, &new)).unwrap();
        }
        store
    }

    #[test]
    fn a_campaigns_own_name_wins_over_a_family_and_a_familys_name_over_a_number() {
        let mut store = queue(&["a/1", "b", "a/2", "3/1", "3/2", "b/1"]);
        let mut found = |text: &str| -> Vec<String> {
            let found = store.transact(|rows| campaigns_named(rows, text)).unwrap();
            found.into_iter().map(|campaign| campaign.name).collect()
        };
        assert_eq!(found("a"), ["a/1", "a/2"]);
        assert_eq!(found("a/2"), ["a/2"]);
        assert_eq!(found("b"), ["b"], "as an older program has let it come about");
        assert_eq!(found("3"), ["3/1", "3/2"]);
        assert_eq!(found("2"), ["b"], "its number");
        assert!(found("c").is_empty() && found("99").is_empty());
    }

    #[test]
    fn neither_a_family_nor_a_campaign_hides_the_other_one() {
        let mut store = queue(&["a/1", "a/2", "b"]);
        let mut clash = |name: &str, count| store.transact(|rows| name_clash(rows, name, count)).unwrap();
        for count in [1, 2] {
            let fault = clash("a", count).unwrap();
            assert!(fault.message.contains("from 'a/1' to 'a/2'"), "{fault:?}");
        }
        assert!(clash("b", 2).unwrap().message.contains("a campaign named 'b'"));
        assert_eq!(clash("b", 1), None, "the queue refuses it");
        assert_eq!(clash("c", 2), None);
    }
}
