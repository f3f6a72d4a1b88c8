//! Every statement that is prepared, in one table.
//!
//! In: nothing. Out: the text of each. Nothing else here has text of a statement that reads or
//! writes rows, so that whoever prepares all of the table has seen all that there is. Must not know
//! values.

/// The columns of a shard, in the order in which they are read and written.
macro_rules! shard {
    () => {
        "id, campaign, link, segment, entry_first, entry_end, files, bytes, done_files, done_bytes, failed_files, \
         failed_bytes, state, mover, lease_until, hold, rank, not_before, again, lapses, breaks, fence, claim, moved, \
         judged, unclaimed"
    };
}

/// The columns of a notice, in the order in which they are read and written.
macro_rules! notice {
    () => {
        "number, hook, campaign, kind, shard, link, fence, state, total_files, total_bytes, done_files, done_bytes, \
         failed_files, failed_bytes, code, at, given_up, tries, not_before, taker, failure"
    };
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        /// A statement.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Statement {
            $($(#[$doc])* $name,)*
        }

        impl Statement {
            /// All of them.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Statement] = &[$(Statement::$name,)*];

            /// Its text.
            pub(crate) const fn text(self) -> &'static str {
                match self {
                    $(Statement::$name => $text,)*
                }
            }
        }
    };
}

statements! {
    /// The time of the server, which is read once for a transaction.
    Now = "SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint";
    NextNumber = "SELECT nextval('number')";

    Campaign = "SELECT id, key, name, state, priority, weight, deadline, calendar, retry, spec, omitted, hooks
        FROM campaign WHERE id = $1";
    Campaigns = "SELECT id, key, name, state, priority, weight, deadline, calendar, retry, spec, omitted, hooks
        FROM campaign ORDER BY id";
    CampaignIds = "SELECT id FROM campaign ORDER BY id";
    PutCampaign = "INSERT INTO campaign (id, key, name, state, priority, weight, deadline, calendar, retry, spec,
            omitted, hooks) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        ON CONFLICT (id) DO UPDATE SET key = excluded.key, name = excluded.name, state = excluded.state,
            priority = excluded.priority, weight = excluded.weight, deadline = excluded.deadline,
            calendar = excluded.calendar, retry = excluded.retry, spec = excluded.spec, omitted = excluded.omitted,
            hooks = excluded.hooks";
    QueueId = "SELECT id FROM queue_id";
    PutQueueId = "INSERT INTO queue_id (one, id) VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET id = excluded.id";
    Signature = "SELECT campaign, owner, at, spec, roots, manifest FROM signature WHERE campaign = $1";
    PutSignature = "INSERT INTO signature (campaign, owner, at, spec, roots, manifest) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (campaign) DO UPDATE SET owner = excluded.owner, at = excluded.at, spec = excluded.spec,
            roots = excluded.roots, manifest = excluded.manifest";
    PutSegment = "INSERT INTO segment (campaign, number, digest, files, bytes) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (campaign, number) DO UPDATE SET digest = excluded.digest, files = excluded.files,
            bytes = excluded.bytes";
    RemoveShards = "DELETE FROM shard WHERE campaign = $1 AND segment = $2";
    RemoveSegment = "DELETE FROM segment WHERE campaign = $1 AND number = $2";
    Segments = "SELECT campaign, number, digest, files, bytes FROM segment WHERE campaign = $1 ORDER BY number";
    PutOmitted = "INSERT INTO omitted (campaign, source, object, code, message) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (campaign, source, sha256(object)) DO UPDATE SET code = excluded.code, message = excluded.message";
    Omitted = "SELECT campaign, source, object, code, message FROM omitted WHERE campaign = $1
        ORDER BY source, object";

    Site = "SELECT id, name, movers_in, movers_out FROM site WHERE id = $1";
    Sites = "SELECT id, name, movers_in, movers_out FROM site ORDER BY id";
    PutSite = "INSERT INTO site (id, name, movers_in, movers_out) VALUES ($1, $2, $3, $4)
        ON CONFLICT (id) DO UPDATE SET name = excluded.name, movers_in = excluded.movers_in,
            movers_out = excluded.movers_out";
    SiteAbove = "SELECT above FROM site_above WHERE host = $1";
    PutSiteAbove = "INSERT INTO site_above (host, above) VALUES ($1, $2)
        ON CONFLICT (host) DO UPDATE SET above = excluded.above";
    RemoveSiteAbove = "DELETE FROM site_above WHERE host = $1";
    Link = "SELECT id, site_from, site_to, movers, rate, calendar, state, reason, failures, pause_until, mismatches,
            meter_since, meter_bytes, meter_rate
        FROM link WHERE id = $1";
    Links = "SELECT id, site_from, site_to, movers, rate, calendar, state, reason, failures, pause_until, mismatches,
            meter_since, meter_bytes, meter_rate
        FROM link ORDER BY id";
    PutLink = "INSERT INTO link (id, site_from, site_to, movers, rate, calendar, state, reason, failures,
            pause_until, mismatches, meter_since, meter_bytes, meter_rate)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
        ON CONFLICT (id) DO UPDATE SET site_from = excluded.site_from, site_to = excluded.site_to,
            movers = excluded.movers, rate = excluded.rate, calendar = excluded.calendar, state = excluded.state,
            reason = excluded.reason, failures = excluded.failures, pause_until = excluded.pause_until,
            mismatches = excluded.mismatches, meter_since = excluded.meter_since,
            meter_bytes = excluded.meter_bytes, meter_rate = excluded.meter_rate";

    ShareUsed = "SELECT used FROM share WHERE campaign = $1 AND link = $2";
    PutShareUsed = "INSERT INTO share (campaign, link, used) VALUES ($1, $2, $3)
        ON CONFLICT (campaign, link) DO UPDATE SET used = excluded.used";

    Shard = concat!("SELECT ", shard!(), " FROM shard WHERE id = $1");
    PutShard = concat!(
        "INSERT INTO shard (", shard!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
            $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)
        ON CONFLICT (id) DO UPDATE SET campaign = excluded.campaign, link = excluded.link,
            segment = excluded.segment, entry_first = excluded.entry_first, entry_end = excluded.entry_end,
            files = excluded.files, bytes = excluded.bytes, done_files = excluded.done_files,
            done_bytes = excluded.done_bytes, failed_files = excluded.failed_files,
            failed_bytes = excluded.failed_bytes, state = excluded.state, mover = excluded.mover,
            lease_until = excluded.lease_until, hold = excluded.hold, rank = excluded.rank,
            not_before = excluded.not_before, again = excluded.again, lapses = excluded.lapses,
            breaks = excluded.breaks, fence = excluded.fence, claim = excluded.claim, moved = excluded.moved,
            judged = excluded.judged, unclaimed = excluded.unclaimed"
    );
    /// The first that no other transaction has locked, and it is locked.
    FirstReady = concat!("SELECT ", shard!(), " FROM shard WHERE state = 1 AND link = $1
        AND campaign <> ALL (string_to_array($2, ',')::bigint[]) ORDER BY rank, id LIMIT 1 FOR UPDATE SKIP LOCKED");
    FirstPlanned = concat!("SELECT ", shard!(), " FROM shard WHERE state = 0 AND campaign = $1 AND link = $2
        AND (not_before <= $3 OR not_before > $4) ORDER BY id LIMIT 1");
    CountReady = "SELECT count(*) FROM shard WHERE state = 1 AND link = $1";
    Lapsed = concat!("SELECT ", shard!(), " FROM shard WHERE state = 2 AND (lease_until <= $1 OR lease_until > $2)
        ORDER BY id LIMIT $3");
    Shards = concat!("SELECT ", shard!(), " FROM shard WHERE campaign = $1 AND state = $2 AND id > $3
        ORDER BY id LIMIT $4");
    CommitOf = concat!("SELECT ", shard!(), " FROM shard WHERE campaign = $1 AND segment = 9223372036854775807");
    ShardSums = "SELECT link, state, count(*), sum(files)::bigint, sum(bytes)::bigint, sum(done_files)::bigint,
            sum(done_bytes)::bigint, sum(failed_files)::bigint, sum(failed_bytes)::bigint, sum(unclaimed)::bigint
        FROM shard WHERE campaign = $1 GROUP BY link, state ORDER BY link, state";

    Permits = "SELECT kind, place, slot, shard, fence, claim, until FROM permit WHERE kind = $1 AND place = $2
        ORDER BY slot";
    PermitsOf = "SELECT kind, place, slot, shard, fence, claim, until FROM permit WHERE shard = $1
        ORDER BY kind, place, slot";
    PutPermit = "INSERT INTO permit (kind, place, slot, shard, fence, claim, until) VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (kind, place, slot) DO UPDATE SET shard = excluded.shard, fence = excluded.fence,
            claim = excluded.claim, until = excluded.until";
    RemovePermit = "DELETE FROM permit WHERE kind = $1 AND place = $2 AND slot = $3";

    FaultsOf = "SELECT shard, path, campaign, bytes, code, blame, message, given_up, tries, first, last
        FROM fault WHERE shard = $1 ORDER BY path";
    PutFault = "INSERT INTO fault (shard, path, campaign, bytes, code, blame, message, given_up, tries, first, last)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        ON CONFLICT (shard, sha256(path)) DO UPDATE SET campaign = excluded.campaign, bytes = excluded.bytes,
            code = excluded.code, blame = excluded.blame, message = excluded.message, given_up = excluded.given_up,
            tries = excluded.tries, first = excluded.first, last = excluded.last";
    RemoveFault = "DELETE FROM fault WHERE shard = $1 AND sha256(path) = sha256($2)";
    FaultSums = "SELECT code, given_up, count(*), sum(bytes)::bigint FROM fault WHERE campaign = $1
        GROUP BY code, given_up ORDER BY code, given_up";

    PutNotice = concat!("INSERT INTO notice (", notice!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
            $13, $14, $15, $16, $17, $18, $19, $20, $21)
        ON CONFLICT (number) DO UPDATE SET given_up = excluded.given_up, tries = excluded.tries,
            not_before = excluded.not_before, taker = excluded.taker, failure = excluded.failure");
    RemoveNotice = "DELETE FROM notice WHERE number = $1";
    Notice = concat!("SELECT ", notice!(), " FROM notice WHERE number = $1");
    /// The first that no other transaction has locked, and it is locked.
    FirstNotice = concat!("SELECT ", notice!(), " FROM notice
        WHERE given_up = 0 AND hook = $1 AND (not_before <= $2 OR not_before > $3)
        AND campaign <> ALL (string_to_array($4, ',')::bigint[]) ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED");
    /// Finds again the one that this transaction has locked.
    GiveUpFirstNotice = "UPDATE notice SET given_up = 1 WHERE number = (SELECT number FROM notice
        WHERE given_up = 0 AND hook = $1 AND (not_before <= $2 OR not_before > $3)
        AND campaign <> ALL (string_to_array($4, ',')::bigint[]) ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED)";
    /// The ends of campaigns, of kind 1, are not among them.
    TrimWaiting = "DELETE FROM notice WHERE number IN (SELECT number FROM notice
        WHERE campaign = $1 AND hook = $2 AND given_up = 0 AND kind <> 1 ORDER BY number OFFSET $3)";
    TrimGivenUp = "DELETE FROM notice WHERE number IN (SELECT number FROM notice
        WHERE campaign = $1 AND hook = $2 AND given_up <> 0 ORDER BY number DESC OFFSET $3)";
    Notices = concat!("SELECT ", notice!(), " FROM notice WHERE campaign = $1 AND number > $2 ORDER BY number LIMIT $3");

    Verification = "SELECT shard, campaign, last, entry, claim, until, failed, unlisted_kind, unlisted_files,
        unlisted_bytes FROM verification WHERE shard = $1";
    PutVerification = "INSERT INTO verification (shard, campaign, last, entry, claim, until, failed, unlisted_kind,
            unlisted_files, unlisted_bytes)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (shard) DO UPDATE SET campaign = excluded.campaign, last = excluded.last,
            entry = excluded.entry, claim = excluded.claim, until = excluded.until, failed = excluded.failed,
            unlisted_kind = excluded.unlisted_kind, unlisted_files = excluded.unlisted_files,
            unlisted_bytes = excluded.unlisted_bytes";
    /// The first whose shard no other transaction has locked, and it is locked.
    FirstToVerify = "SELECT s.id, CASE WHEN v.last IS NULL OR v.last > $2 THEN 0 ELSE v.last END AS read
        FROM shard s LEFT JOIN verification v ON v.shard = s.id
        WHERE s.campaign = $1 AND s.state IN (3, 4) AND s.done_files > 0
        AND (v.until IS NULL OR (v.until <= $3 OR v.until > $4) AND (v.failed < $5 OR v.failed > $2)) ORDER BY read, s.id LIMIT 1
        FOR UPDATE OF s SKIP LOCKED";
    VerificationSums = "SELECT coalesce(sum(files), 0)::bigint, coalesce(sum(bytes), 0)::bigint,
            coalesce(sum(files) FILTER (WHERE read = 0), 0)::bigint,
            coalesce(sum(bytes) FILTER (WHERE read = 0), 0)::bigint,
            coalesce(sum(files) FILTER (WHERE read > 0 AND read < $3), 0)::bigint,
            coalesce(sum(bytes) FILTER (WHERE read > 0 AND read < $3), 0)::bigint,
            min(read) FILTER (WHERE read > 0)
        FROM (SELECT s.done_files AS files, s.done_bytes AS bytes,
                CASE WHEN v.last IS NULL OR v.last > $2 THEN 0 ELSE v.last END AS read
            FROM shard s LEFT JOIN verification v ON v.shard = s.id
            WHERE s.campaign = $1 AND s.state IN (3, 4) AND s.done_files > 0) AS delivered";
    BadFilesOf = "SELECT shard, path, campaign, files, bytes, kind, message, first, last FROM bad_file
        WHERE shard = $1 ORDER BY path";
    PutBadFile = "INSERT INTO bad_file (shard, path, campaign, files, bytes, kind, message, first, last)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (shard, sha256(path)) DO UPDATE SET campaign = excluded.campaign, files = excluded.files,
            bytes = excluded.bytes, kind = excluded.kind, message = excluded.message, first = excluded.first,
            last = excluded.last";
    RemoveBadFile = "DELETE FROM bad_file WHERE shard = $1 AND sha256(path) = sha256($2)";
    BadShard = "SELECT shard FROM bad_file WHERE campaign = $1 AND shard > $2 ORDER BY shard LIMIT 1";
    BadSums = "SELECT kind, sum(files)::bigint, sum(bytes)::bigint FROM bad_file WHERE campaign = $1
        GROUP BY kind ORDER BY kind";

    Leader = "SELECT term, holder, until FROM leader";
    PutLeader = "INSERT INTO leader (one, term, holder, until) VALUES (1, $1, $2, $3)
        ON CONFLICT (one) DO UPDATE SET term = excluded.term, holder = excluded.holder, until = excluded.until";

    /// The last transaction of a store that wrote.
    PutMark = "INSERT INTO mark (store, token, at) VALUES ($1, $2, statement_timestamp())
        ON CONFLICT (store) DO UPDATE SET token = excluded.token, at = excluded.at";
    /// The mark that is committed. It waits for a transaction that writes the same row.
    AskMark = "INSERT INTO mark (store, token, at) VALUES ($1, $2, statement_timestamp())
        ON CONFLICT (store) DO UPDATE SET at = excluded.at RETURNING token";
    /// Marks of stores that are long gone.
    RemoveOldMarks = "DELETE FROM mark WHERE at < statement_timestamp() - interval '30 days'";

    /// Whether a schema is there, and may be used; its relations, and whether it is a queue's.
    LookAtSchema = "SELECT (SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = $1),
            (SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = $1 AND has_schema_privilege(oid, 'USAGE')),
            count(*), count(*) FILTER (WHERE relname = 'queue_version')
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1";
    /// The server's version, the encoding of the database, and whether it can be written to.
    LookAtServer = "SELECT current_setting('server_version_num')::bigint, current_setting('server_encoding'),
            (CASE WHEN pg_catalog.pg_is_in_recovery() THEN 1 ELSE 0 END)::bigint";
    /// One program at a time brings a schema up to date.
    LockMigrations = "SELECT pg_catalog.pg_advisory_xact_lock($1)";
    QueueVersion = "SELECT version FROM queue_version";
    PutQueueVersion = "INSERT INTO queue_version (one, version) VALUES (1, $1)
        ON CONFLICT (one) DO UPDATE SET version = excluded.version";
}
