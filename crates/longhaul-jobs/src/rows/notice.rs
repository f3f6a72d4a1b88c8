//! Notices: what hooks are told of a campaign, as rows that outlive whoever was to tell.
//!
//! In: the wishes of a campaign, and events of it. Out: plain data. A wish names a hook by its key
//! alone; what that key runs or calls is said on the hosts of movers. Must not know how a hook is
//! told.

use std::fmt;
use std::str::FromStr;

use longhaul_core::{FaultCode, PlainText};

use crate::ids::{Amount, CampaignId, ClaimId, Fence, LinkId, Micros, ShardId};

/// The key of a hook: up to 64 letters, digits, dots, underscores and hyphens of ASCII. It begins
/// with a letter or a digit, so that it is no path and no option.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookKey(String);

/// The kind of event of which a hook is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoticeKind {
    /// A shard is settled.
    Shard,
    /// A campaign is done or cancelled.
    Campaign,
    /// A fault ended the transfer of a shard, or holds the shard.
    Fault,
}

/// The wish that a hook is told of some events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookWish {
    /// The hook.
    pub key: HookKey,
    /// The events, each once.
    pub kinds: Vec<NoticeKind>,
}

/// The wishes of a campaign, eight at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookWishes(Vec<HookWish>);

/// A text that is no wish.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no hook: write KEY or KEY:EVENT,EVENT with events of shard, campaign and fault, eight at most")]
pub struct HookError(pub String);

/// A hook that is to be told of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its number.
    pub number: u64,
    /// The hook.
    pub hook: HookKey,
    /// The campaign.
    pub campaign: CampaignId,
    /// The event.
    pub event: NoticeEvent,
    /// How far it is.
    pub delivery: Delivery,
}

/// An event of a campaign, with its figures at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeEvent {
    /// Its kind.
    pub kind: NoticeKind,
    /// The shard, its link, and the fence of its claim. `None`: it is one of the whole campaign.
    pub shard: Option<NoticeShard>,
    /// The state to which the shard or the campaign came, by its name.
    pub state: PlainText,
    /// Files and bytes of the shard or the campaign.
    pub total: Amount,
    /// The part of them that stands.
    pub done: Amount,
    /// The part of them that was given up.
    pub failed: Amount,
    /// The fault. `None` if it is none.
    pub code: Option<FaultCode>,
    /// When it happened.
    pub at: Micros,
}

/// The shard of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeShard {
    /// The shard.
    pub id: ShardId,
    /// Its link.
    pub link: LinkId,
    /// The fence of its last claim.
    pub fence: Fence,
}

/// How far a notice is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Nobody tries it any more.
    pub given_up: bool,
    /// Times that it was begun.
    pub tries: u32,
    /// Nobody takes it before this time: whoever has it is at work until then, or it pauses.
    pub not_before: Micros,
    /// Random bytes of whoever took it last.
    pub taker: ClaimId,
    /// The words of the last failure.
    pub failure: Option<PlainText>,
}

/// Wishes of a campaign, at most.
const WISHES_MAX: usize = 8;
/// Bytes of a key, at most.
const KEY_BYTES_MAX: usize = 64;

impl HookKey {
    /// The key. `None` if the text is none.
    pub fn new(text: &str) -> Option<HookKey> {
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (begins && text.len() <= KEY_BYTES_MAX && text.bytes().all(fits)).then(|| HookKey(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NoticeEvent {
    /// The name of the fault.
    pub fn code_name(&self) -> Option<&'static str> {
        self.code.map(FaultCode::name)
    }
}

impl Delivery {
    /// The words of the last failure.
    pub fn failure_text(&self) -> Option<&str> {
        self.failure.as_ref().map(PlainText::as_str)
    }
}

impl NoticeKind {
    /// All kinds.
    pub const ALL: [NoticeKind; 3] = [NoticeKind::Shard, NoticeKind::Campaign, NoticeKind::Fault];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            NoticeKind::Shard => "shard",
            NoticeKind::Campaign => "campaign",
            NoticeKind::Fault => "fault",
        }
    }
}

impl FromStr for HookWish {
    type Err = HookError;

    /// Reads `KEY` or `KEY:EVENT,EVENT`. Without events they are `campaign,fault`.
    fn from_str(text: &str) -> Result<HookWish, HookError> {
        let wrong = || HookError(PlainText::from(text).to_string());
        let (key, events) = text.split_once(':').unwrap_or((text, "campaign,fault"));
        let kind = |name| NoticeKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(wrong);
        let mut kinds = events.split(',').map(kind).collect::<Result<Vec<_>, _>>()?;
        kinds.sort_unstable();
        kinds.dedup();
        Ok(HookWish { key: HookKey::new(key).ok_or_else(wrong)?, kinds })
    }
}

impl HookWishes {
    /// The wishes, of which each hook has one.
    ///
    /// # Errors
    /// [`HookError`] for more than eight, and for two of one hook.
    pub fn new(wishes: Vec<HookWish>) -> Result<HookWishes, HookError> {
        let mut keys: Vec<&HookKey> = wishes.iter().map(|wish| &wish.key).collect();
        keys.sort_unstable();
        if let Some(two) = keys.windows(2).find(|two| two[0] == two[1]) {
            return Err(HookError(two[0].0.clone()));
        }
        match wishes.get(WISHES_MAX) {
            Some(beyond) => Err(HookError(beyond.key.0.clone())),
            None => Ok(HookWishes(wishes)),
        }
    }

    /// All of them.
    pub fn all(&self) -> &[HookWish] {
        &self.0
    }

    /// The hooks that are told of events of a kind.
    pub fn told_of(&self, kind: NoticeKind) -> impl Iterator<Item = &HookKey> {
        self.0.iter().filter(move |wish| wish.kinds.contains(&kind)).map(|wish| &wish.key)
    }
}

impl fmt::Display for HookWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.kinds.iter().map(|kind| kind.name()).collect();
        write!(f, "{}:{}", self.key.0, kinds.join(","))
    }
}

/// The wishes with spaces between them, as [`FromStr`] reads them.
impl fmt::Display for HookWishes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wishes: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&wishes.join(" "))
    }
}

impl FromStr for HookWishes {
    type Err = HookError;

    fn from_str(text: &str) -> Result<HookWishes, HookError> {
        let wishes = text.split(' ').filter(|wish| !wish.is_empty()).map(str::parse);
        HookWishes::new(wishes.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_names_a_key_and_events_and_nothing_that_could_be_run_or_called() {
        let wish: HookWish = "mail".parse().unwrap();
        assert_eq!((wish.key.as_str(), wish.to_string().as_str()), ("mail", "mail:campaign,fault"));
        assert_eq!("a.b-c_9:fault,shard,fault".parse::<HookWish>().unwrap().to_string(), "a.b-c_9:shard,fault");
        let long = "a".repeat(65);
        for text in [
            "",
            "/bin/sh",
            "http://h/x",
            "a b",
            "-x",
            "..",
            "mail:",
            "mail:boot",
            "mail:shard;x",
            "m:shard:fault",
            &long,
        ] {
            assert_eq!(text.parse::<HookWish>(), Err(HookError(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn wishes_are_eight_at_most_and_each_hook_has_one() {
        let text = "a:shard b:campaign,fault";
        assert_eq!(text.parse::<HookWishes>().unwrap().to_string(), text);
        assert_eq!("".parse::<HookWishes>().unwrap(), HookWishes::default());
        assert!("a:shard a:fault".parse::<HookWishes>().is_err());
        let many = |n: usize| (0..n).map(|at| format!("h{at}")).collect::<Vec<_>>().join(" ").parse::<HookWishes>();
        assert!(many(8).is_ok() && many(9).is_err());
    }
}
