//! A page of claims: the text of the file that holds those on neighbouring shards of one campaign.
//!
//! In: bytes of a file. Out: what is kept on each shard, or the reason why the text is not as it
//! was written. A page is written whole, so that half of one is always damage. Knows no files.
//!
//! ```text
//! longhaul claims 1
//! campaign 00112233445566778899aabbccddeeff
//! owner 00112233445566778899aabbccddeeff
//! shard 300 serial 2 fence 7 id (32 hexadecimal digits) session (32 hexadecimal digits)
//! check (BLAKE3 of all above, 64 hexadecimal digits)
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

/// A showing of a claim as a destination keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptShowing {
    /// It grows with each showing that is kept for the shard.
    pub serial: u64,
    /// The fence of the claim.
    pub fence: u64,
    /// The id of the claim.
    pub id: [u8; 16],
    /// The session in which it was shown.
    pub session: [u8; 16],
}

/// The principal whose claim made a page: 16 bytes of a digest of its name. It is counted by them
/// how many pages a principal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimsOwner(pub [u8; 16]);

/// The claims on shards that lie side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Its owner. `None`: a build made it that noted nobody.
    pub(super) owner: Option<ClaimsOwner>,
    /// By the number of the shard.
    pub(super) kept: BTreeMap<u64, KeptShowing>,
}

impl Page {
    /// The text of this page of a campaign.
    pub(super) fn text(&self, campaign: &[u8; 16]) -> String {
        let mut text = format!("{HEAD}\ncampaign {}\n", hex(campaign));
        if let Some(ClaimsOwner(owner)) = &self.owner {
            let _ = writeln!(text, "{OWNER}{}", hex(owner));
        }
        for (shard, kept) in &self.kept {
            let KeptShowing { serial, fence, id, session } = kept;
            let (id, session) = (hex(id), hex(session));
            let _ = writeln!(text, "shard {shard} serial {serial} fence {fence} id {id} session {session}");
        }
        let check = blake3::hash(text.as_bytes());
        let _ = writeln!(text, "check {check}");
        text
    }

    /// Reads the page of this campaign whose first shard is `first`.
    ///
    /// # Errors
    /// The part that is not as it was written.
    pub(super) fn parse(bytes: &[u8], campaign: &[u8; 16], first: u64) -> Result<Page, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is no text")?;
        let (body, check) = text.strip_suffix('\n').and_then(|text| text.rsplit_once('\n')).ok_or("it is cut off")?;
        let body = &text[..=body.len()];
        let check = check.strip_prefix("check ").ok_or("its last line is no check")?;
        if *check != *blake3::hash(body.as_bytes()).to_hex() {
            return Err("its check is another");
        }
        let mut lines = body.lines();
        if lines.next() != Some(HEAD) {
            return Err("another version of longhaul wrote it");
        }
        if lines.next().and_then(|line| line.strip_prefix("campaign ")) != Some(&hex(campaign)) {
            return Err("it is of another campaign");
        }
        let mut lines = lines.peekable();
        let owner = lines.next_if(|line| line.starts_with(OWNER)).map(|line| owner_in(line).ok_or("its owner is none"));
        let owner = owner.transpose()?;
        let mut kept = BTreeMap::new();
        for line in lines {
            let (shard, showing) = read_line(line).ok_or("a line of it is none of a claim")?;
            if shard.checked_sub(first).is_none_or(|at| at >= SHARDS_A_PAGE) || kept.insert(shard, showing).is_some() {
                return Err("a shard of it belongs elsewhere");
            }
        }
        Ok(Page { owner, kept })
    }
}

/// The owner in the head of a page, which is not checked. `None`: it notes nobody.
pub(super) fn owner_in_head(bytes: &[u8]) -> Option<ClaimsOwner> {
    let line = bytes.split(|byte| *byte == b'\n').nth(2)?;
    owner_in(std::str::from_utf8(line).ok()?)
}

fn owner_in(line: &str) -> Option<ClaimsOwner> {
    bytes_of(line.strip_prefix(OWNER)?).map(ClaimsOwner)
}

fn read_line(line: &str) -> Option<(u64, KeptShowing)> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["shard", shard, "serial", serial, "fence", fence, "id", id, "session", session] = words[..] else {
        return None;
    };
    let (id, session) = (bytes_of(id)?, bytes_of(session)?);
    let showing = KeptShowing { serial: serial.parse().ok()?, fence: fence.parse().ok()?, id, session };
    Some((shard.parse().ok()?, showing))
}

/// 16 bytes as 32 hexadecimal digits.
pub(super) fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

fn bytes_of(text: &str) -> Option<[u8; 16]> {
    let number = u128::from_str_radix(text, 16).ok()?.to_be_bytes();
    (hex(&number) == text).then_some(number)
}

/// Shards whose claims lie in one file. More make each claim dearer, as the whole file is written;
/// fewer make more files.
pub(super) const SHARDS_A_PAGE: u64 = 256;
/// Bytes of a page at most: its lines have 20 digits in each of three numbers.
pub(super) const CLAIMS_PAGE_BYTES_MAX: usize = 64 << 10;
/// Bytes from the beginning of a page in which its owner stands.
pub(super) const CLAIMS_HEAD_BYTES_MAX: usize = 128;
const HEAD: &str = "longhaul claims 1";
const OWNER: &str = "owner ";

#[cfg(test)]
mod tests {
    use super::*;

    fn page(first: u64) -> Page {
        let most = KeptShowing { serial: u64::MAX, fence: u64::MAX, id: [0xfe; 16], session: [0; 16] };
        let owner = Some(ClaimsOwner([0xcd; 16]));
        Page { owner, kept: (0..SHARDS_A_PAGE).map(|at| (first + at, most)).collect() }
    }

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let first = u64::MAX - (SHARDS_A_PAGE - 1);
        let unowned = Page { owner: None, ..page(0) };
        let last = Page { kept: page(first).kept.split_off(&u64::MAX), ..Page::default() };
        for page in [Page::default(), page(0), unowned, last] {
            let first = page.kept.keys().next().map_or(0, |shard| shard - shard % SHARDS_A_PAGE);
            let text = page.text(&[7; 16]);
            assert!(text.len() < CLAIMS_PAGE_BYTES_MAX, "{}", text.len());
            let head = &text.as_bytes()[..text.len().min(CLAIMS_HEAD_BYTES_MAX)];
            assert_eq!(owner_in_head(head), page.owner);
            assert_eq!(Page::parse(text.as_bytes(), &[7; 16], first), Ok(page));
        }
    }

    #[test]
    fn the_bytes_of_a_page_are_these() {
        let kept = KeptShowing { serial: 2, fence: 7, id: [0x11; 16], session: [0x22; 16] };
        let text = Page { owner: Some(ClaimsOwner([0x33; 16])), kept: [(300, kept)].into() }.text(&[0xab; 16]);
        let (body, check) = text.split_once("check ").expect("a check");
        let want = format!(
            "longhaul claims 1\ncampaign {}\nowner {}\nshard 300 serial 2 fence 7 id {} session {}\n",
            "ab".repeat(16),
            "33".repeat(16),
            "11".repeat(16),
            "22".repeat(16)
        );
        assert_eq!(body, want);
        assert_eq!(check.len(), 65);
    }

    #[test]
    fn no_damaged_page_is_taken_for_another_or_for_an_empty_one() {
        let text = page(256).text(&[7; 16]).into_bytes();
        assert!(Page::parse(&text, &[8; 16], 256).is_err() && Page::parse(&text, &[7; 16], 512).is_err());
        for len in (0..text.len()).step_by(97) {
            assert!(Page::parse(&text[..len], &[7; 16], 256).is_err(), "{len} bytes are left");
        }
        for at in (0..text.len()).step_by(89) {
            for damaged in [0, text[at] ^ 1, text[at] ^ 0x80] {
                let mut text = text.clone();
                text[at] = damaged;
                assert!(Page::parse(&text, &[7; 16], 256).is_err(), "byte {at} is {damaged}");
            }
        }
        assert!(Page::parse(&vec![0; text.len()], &[7; 16], 256).is_err());
    }
}
