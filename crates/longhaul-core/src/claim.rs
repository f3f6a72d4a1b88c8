//! A mover's claim on a shard of a campaign, as it is shown to a destination.
//!
//! In: text of a user, or four numbers of a queue. Out: [`ShardClaim`], and its text. Must not know
//! who keeps claims, or which of two passes.

use std::fmt;
use std::str::FromStr;

/// A claim on a shard. Its text is `CAMPAIGN:SHARD:FENCE:ID`, where campaign and id are 32
/// hexadecimal digits, and shard and fence are decimal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ShardClaim {
    /// 16 random bytes by which destinations know the campaign.
    pub campaign: [u8; 16],
    /// The shard's number in its campaign.
    pub shard: u64,
    /// It grows with each claim of the shard.
    pub fence: u64,
    /// 16 random bytes that tell two claims with one fence apart.
    pub id: [u8; 16],
}

/// A text that is no claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardClaimError {
    /// It has other parts than four.
    #[error("a claim is CAMPAIGN:SHARD:FENCE:ID")]
    Parts,
    /// The campaign or the id is not what one looks like.
    #[error("campaign and id of a claim are 32 hexadecimal digits each")]
    Id,
    /// The shard or the fence is no number.
    #[error("shard and fence of a claim are numbers, at most {SHOWN_FENCE_MAX} for the fence")]
    Number,
}

/// The highest fence that destinations keep. Claims that follow each other never come so far, and
/// if a higher one were kept, no queue could give out one above it.
pub const SHOWN_FENCE_MAX: u64 = i64::MAX as u64 / 2;

impl ShardClaim {
    /// The text of the kept claim on the same shard, without its id: only who made it has that.
    pub fn kept(&self, fence: u64) -> String {
        format!("{}:{}:{fence}", Hex(&self.campaign), self.shard)
    }
}

/// The fence in the text of a kept claim.
pub(crate) fn fence_of_kept(text: &str) -> Option<u64> {
    let mut parts = text.rsplitn(3, ':');
    let fence = parts.next()?.parse().ok()?;
    parts.next()?.parse::<u64>().ok()?;
    bytes_of(parts.next()?).map(|_| fence)
}

impl fmt::Display for ShardClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kept(self.fence), Hex(&self.id))
    }
}

impl FromStr for ShardClaim {
    type Err = ShardClaimError;

    fn from_str(text: &str) -> Result<ShardClaim, ShardClaimError> {
        let parts: Vec<&str> = text.split(':').collect();
        let [campaign, shard, fence, id] = parts[..] else { return Err(ShardClaimError::Parts) };
        let bytes = |text| bytes_of(text).ok_or(ShardClaimError::Id);
        let number = |text: &str| match text.bytes().all(|digit| digit.is_ascii_digit()) {
            true => text.parse::<u64>().map_err(|_| ShardClaimError::Number),
            false => Err(ShardClaimError::Number),
        };
        let fence = number(fence)
            .and_then(|fence| if fence <= SHOWN_FENCE_MAX { Ok(fence) } else { Err(ShardClaimError::Number) })?;
        Ok(ShardClaim { campaign: bytes(campaign)?, shard: number(shard)?, fence, id: bytes(id)? })
    }
}

/// 16 bytes as 32 hexadecimal digits.
struct Hex<'b>(&'b [u8; 16]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The 16 bytes of 32 hexadecimal digits.
fn bytes_of(text: &str) -> Option<[u8; 16]> {
    let is_hex = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_read_as_it_was_written_and_nothing_else_is_one() {
        let claim = ShardClaim { campaign: [0xab; 16], shard: 7, fence: SHOWN_FENCE_MAX, id: [1; 16] };
        assert_eq!(claim.to_string().parse(), Ok(claim));
        assert_eq!(fence_of_kept(&claim.kept(9)), Some(9));
        let (hex, cases) = ("0f".repeat(16), ShardClaimError::Parts);
        for (text, why) in [
            (String::new(), cases),
            (format!("{hex}:1:2"), cases),
            (format!("{hex}:1:2:{hex}:"), cases),
            (format!("{hex}0:1:2:{hex}"), ShardClaimError::Id),
            (format!("{hex}:1:2:+{}", &hex[1..]), ShardClaimError::Id),
            (format!("{hex}:+1:2:{hex}"), ShardClaimError::Number),
            (format!("{hex}::2:{hex}"), ShardClaimError::Number),
            (format!("{hex}:1:{}:{hex}", SHOWN_FENCE_MAX + 1), ShardClaimError::Number),
            (format!("{hex}:18446744073709551616:1:{hex}"), ShardClaimError::Number),
        ] {
            assert_eq!(text.parse::<ShardClaim>(), Err(why), "{text}");
        }
        for text in ["", "9", "x:1:2", "1:2"] {
            assert_eq!(fence_of_kept(text), None, "{text}");
        }
    }
}
